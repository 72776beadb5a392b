#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD FOLDER: what `cmake --install` wrote works by itself, from any folder; so does the Debian package, where
# there is a dpkg to make it. An RPM is made and looked into, where there is an rpmbuild.
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
grep -q -- '--complete' "$folder/usr/share/bash-completion/completions/apus" || fail "bash gets no completion"
grep -q '^\.TH APUS 1' "$folder/usr/share/man/man1/apus.1" || fail "man gets no page"
echo "installed, and it scores"

# What install.sh would do on machines of three kinds.
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder/with-gpu" "$folder/with-npu"
printf '#!/bin/sh\necho "GPU 0: a card"\n' >"$folder/with-gpu/nvidia-smi"
printf '#!/bin/sh\n' >"$folder/with-npu/npu-smi"
chmod +x "$folder"/with-*/*
would() {  # would WORDS FLAGS...: what install.sh would do has these words
  local said
  said=$("$source/install.sh" --dry-run "${@:2}")
  [[ $said == *"$1"* ]] || fail "install.sh ${*:2} does not say: $1"
}
PATH=$folder/with-gpu:$PATH would "Apus for cuda"
PATH=$folder/with-npu:$PATH would "torch_npu=="
would "cmake --install build --prefix /opt/x" --kind source --prefix /opt/x
"$source/install.sh" --kind gpu >/dev/null 2>&1 && fail "install.sh takes a kind that there is not"

if ! command -v dpkg-shlibdeps >/dev/null; then echo "no dpkg-shlibdeps here: no Debian package made"; exit 0; fi
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$folder/packed" >/dev/null
package=$(ls "$folder"/packed/apus_*.deb)
for library in libcurl4 libstdc++6; do
  dpkg-deb -f "$package" Depends | grep "$library" >/dev/null || fail "$package does not depend on $library"
done
dpkg-deb -x "$package" "$folder/unpacked"
scores "$folder/unpacked/usr/bin/apus"
echo "unpacked, and it scores: $(basename "$package")"

if ! command -v rpmbuild >/dev/null; then echo "no rpmbuild here: no RPM made"; exit 0; fi
cpack --config "$build/CPackConfig.cmake" -G RPM -B "$folder/packed" >/dev/null
package=$(ls "$folder"/packed/apus-*.rpm)
rpm -qpl "$package" | grep '^/usr/bin/apus$' >/dev/null || fail "$package holds no program"
rpm -qp --requires "$package" | grep libcurl >/dev/null || fail "$package does not ask for libcurl"
echo "packed: $(basename "$package")"
