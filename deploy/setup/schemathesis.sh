#!/usr/bin/env bash
# Install schemathesis, which tests the daemon's API by its description, and
# openapi-spec-validator, which checks the description, into .venv (a separate
# Python environment).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=4.32.5
validator=0.9.0
folder=$root/.venv

installed=$folder/installed-$version-$validator
[ -e "$installed" ] && exit
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" --quiet --disable-pip-version-check install \
    "schemathesis==$version" "openapi-spec-validator==$validator"
touch "$installed"
