#!/usr/bin/env bash
# Print the base URL of the Debian mirror: HARTLINE_MIRROR, or the one that this
# machine's own apt is configured with.
set -euo pipefail

if [ -n "${HARTLINE_MIRROR:-}" ]; then
    echo "$HARTLINE_MIRROR"
    exit
fi

# The first one that apt itself would use: one line per index target.
mirror=$(apt-get indextargets --format '$(SITE) $(REPO_URI) $(ORIGIN)' 2>/dev/null |
    awk '$3 == "Debian" && $2 !~ /security/ { print $2; exit }')
if [ -z "$mirror" ]; then
    # No lists fetched yet: read the sources themselves.
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        grep -Eo '(https?|file|copy):[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
fi
if [ -z "$mirror" ]; then
    echo "$0: no Debian mirror in this machine's apt sources" >&2
    exit 1
fi
echo "$mirror"
