#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD FOLDER: what `cmake --install` wrote works by itself, from any folder; so does the Debian package, where
# there is a dpkg to make it.
set -euo pipefail
build=$1 folder=$2
fail() { echo "FAILED: $*" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/elsewhere"
cd "$folder/elsewhere"
scores() {  # scores APUS: whether that program computes
  rm -rf ./*
  "$1" init --preset tiny --output_dir model >/dev/null
  echo '{"text": "Hello world"}' >rows.jsonl
  "$1" score --model model --dataset rows.jsonl --result_path scores.jsonl >/dev/null
  grep -q logprob scores.jsonl || fail "$1 gives no scores"
}

cmake --install "$build" --prefix "$folder/usr" >/dev/null
scores "$folder/usr/bin/apus"
echo "installed, and it scores"

if ! command -v dpkg-shlibdeps >/dev/null; then echo "no dpkg-shlibdeps here: no Debian package made"; exit 0; fi
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$folder/packed" >/dev/null
package=$(ls "$folder"/packed/apus_*.deb)
for library in libcurl4 libstdc++6; do
  dpkg-deb -f "$package" Depends | grep "$library" >/dev/null || fail "$package does not depend on $library"
done
dpkg-deb -x "$package" "$folder/unpacked"
scores "$folder/unpacked/usr/bin/apus"
echo "unpacked, and it scores: $(basename "$package")"
