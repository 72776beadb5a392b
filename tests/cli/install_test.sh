#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD FOLDER: what `cmake --install` wrote works by itself, from any folder.
set -euo pipefail
build=$1 folder=$2
rm -rf "$folder"
cmake --install "$build" --prefix "$folder/usr" >/dev/null
mkdir "$folder/elsewhere"
cd "$folder/elsewhere"
apus=$folder/usr/bin/apus
"$apus" init --preset tiny --output_dir model >/dev/null
echo '{"text": "Hello world"}' >rows.jsonl
"$apus" score --model model --dataset rows.jsonl --result_path scores.jsonl >/dev/null
grep -q logprob scores.jsonl
echo "installed, and it scores"
