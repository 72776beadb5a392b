#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel_test.sh BUILD FOLDER: the wheel for the torch of $APUS_PEERS, built in BUILD unless $APUS_WHEEL names one, is installed in
# a fresh environment by pip, does the quickstart's recipe there, and goes again. Exit code 77: skipped.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1 folder=$2
skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
[ -n "${APUS_PEERS:-}" ] || skip "APUS_PEERS names no environment with torch (scripts/peers DIR makes one)"
[ -x "$APUS_PEERS/bin/python" ] || skip "no $APUS_PEERS/bin/python (scripts/peers $APUS_PEERS makes it)"
command -v zip >/dev/null || skip "zip is missing, which packs the wheel"
rm -rf "$folder"
mkdir -p "$folder"

wheel=${APUS_WHEEL:-}
if [ -z "$wheel" ]; then
  APUS_WHEEL_BUILD=$build "$source/scripts/build-wheel" "$APUS_PEERS/bin/python" "$folder/dist"
  wheel=$(ls "$folder"/dist/apus-*.whl)
fi

# A fresh environment whose torch, and what it asks for, are links to the peers': 5 GB need not be copied.
"$APUS_PEERS/bin/python" -m venv "$folder/venv"
"$folder/venv/bin/pip" uninstall -q -y setuptools  # torch may ask for a newer one than a venv brings
peers=$("$APUS_PEERS/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for entry in "$peers"/*; do
  case ${entry##*/} in apus* | pip*) ;; *) [ -e "$site/${entry##*/}" ] || ln -s "$entry" "$site/" ;; esac
done
"$folder/venv/bin/pip" install --no-index --no-cache-dir --disable-pip-version-check "$wheel"

# As a user would: by name, from elsewhere, with no hint where anything lies.
unset LD_LIBRARY_PATH PYTHONPATH Torch_DIR
mkdir "$folder/elsewhere"
cd "$folder/elsewhere"
PATH=$folder/venv/bin:$PATH
for name in apus swift megatron; do
  [ "$(command -v $name)" = "$folder/venv/bin/$name" ] || fail "pip installed no command $name"
done
apus --version
swift sft --help >/dev/null
ln -s "$folder/venv/bin/megatron" megatron  # a link of the user's finds them too
./megatron --help | grep '^Usage: megatron ' >/dev/null || fail "megatron is another program"

APUS=apus "$source/quickstart" "$folder/quickstart" >quickstart.txt || { tail -n 20 quickstart.txt; fail "the quickstart"; }
tail -n 3 quickstart.txt
right=$(sed -n 's|^exact match: .* after \([0-9]*\)/40$|\1|p' quickstart.txt)
[ "${right:-0}" -ge 36 ] || fail "of 40 answers ${right:-none} are right"

"$folder/venv/bin/pip" uninstall -q -y apus
[ -z "$(ls -d "$site"/apus* 2>/dev/null)" ] && [ ! -e "$folder/venv/bin/apus" ] || fail "pip uninstall left something"
echo "installed, it learned, and went again"
