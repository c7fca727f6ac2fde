# Settings that fetch-debian.sh, debian-index.sh and update-lock.sh share. Sourced, not run.
#
# HARTLINE_DEBS          folder of downloads and indexes (~/.cache/hartline-debs)
# HARTLINE_MIRROR        base URL of the Debian mirror (from this machine's apt sources)
# HARTLINE_KEYRING       keys that may sign the index (Debian's archive keyring)
# HARTLINE_LOCK          lock file (debian.lock beside this file)
# HARTLINE_FETCH_DELAYS  seconds to wait before each further attempt ("2 5 15")

# Independent of this machine's release: the tests and benchmarks are written against this
# suite.
suite=trixie
cache=${HARTLINE_DEBS:-${XDG_CACHE_HOME:-$HOME/.cache}/hartline-debs}
keyring=${HARTLINE_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
read -ra delays <<<"${HARTLINE_FETCH_DELAYS-2 5 15}"
attempts=$((${#delays[@]} + 1))
# Options of apt's programs: the attempts are counted here, and 127.0.0.1 has no proxy.
apt_options=(-o APT::Sandbox::User=root -o Acquire::Retries=0
    -o Acquire::http::Proxy::127.0.0.1=DIRECT)
another_mirror="try again later, or name another mirror with HARTLINE_MIRROR=URL"

# Print the first reason in apt's output for a failed download, without the mirror's URL.
apt_reason() {
    local reason
    reason=$(sed -n 's/^E: Failed to fetch [^ ]* *//p' <<<"$1" | head -n 1)
    [ -n "$reason" ] || reason=$(sed -n 's/^E: //p' <<<"$1" | tail -n 1)
    case $reason in
    "Undetermined Error"*) reason="the server broke the connection off" ;;
    esac
    echo "${reason:-apt gives no reason}"
}
