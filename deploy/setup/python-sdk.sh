#!/usr/bin/env bash
# Fetch what the tests of the Python packages need into .venv-sdk, at the versions
# and with the hashes of deploy/sdk/python/tests/requirements.txt: a Python
# environment with the tools that build and check the package, and wheels, from
# which the tests make new environments without a network.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
requirements=$root/deploy/sdk/python/tests/requirements.txt
folder=$root/.venv-sdk

digest=$(sha256sum "$requirements")
installed=$folder/installed-${digest:0:16}
[ -e "$installed" ] && exit
rm -rf "$folder"
python3 -m venv "$folder"
pip=("$folder/bin/pip" --quiet --disable-pip-version-check)
"${pip[@]}" download --only-binary :all: --require-hashes --dest "$folder/wheels" -r "$requirements"
"${pip[@]}" install --no-compile --no-index --find-links "$folder/wheels" --require-hashes -r "$requirements"
touch "$installed"
