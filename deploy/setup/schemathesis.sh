#!/usr/bin/env bash
# Install schemathesis, which tests the daemon's API by its description, into
# .venv (a separate Python environment).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=4.32.5
folder=$root/.venv

[ -e "$folder/installed-$version" ] && exit
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" --quiet --disable-pip-version-check install "schemathesis==$version"
touch "$folder/installed-$version"
