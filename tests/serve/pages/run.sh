#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh APUS FOLDER: opens the chat page and the board in a headless Chromium. Exit code 77: skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
apus=$1 folder=$2
skip() { echo "SKIPPED: $*"; exit 77; }
command -v node >/dev/null || skip "node is not installed"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "there is no Chromium (apt-get install chromium)"
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder"

# A short run for the board, and what it made for the chat.
"$apus" init --preset tiny --output_dir model --seed 5 >/dev/null
for n in 1 2 3 4 5 6 7 8; do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"What is $n?\"}, {\"role\": \"assistant\", \"content\": \"The number $n.\"}]}"
done >rows.jsonl
"$apus" sft --model model --dataset rows.jsonl --output_dir runs/first --max_steps 12 --logging_steps 1 --per_device_train_batch_size 2 \
  --learning_rate 1e-3 --report_to none >sft.log 2>&1 || { cat sft.log; exit 1; }

pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
"$apus" deploy --model model --host 127.0.0.1 --port 18800 --api_key secret >chat.log 2>&1 & pids+=($!)
"$apus" board --logging_dir runs --port 18900 >board.log 2>&1 & pids+=($!)
address_in() {
  for _ in $(seq 300); do
    grep -o 'http://[0-9.:]*' "$1" | head -n 1 | grep . && return
    sleep 0.1
  done
  cat "$1" >&2
  return 1
}
node "$here/pages.mjs" "$chromium" "$(address_in chat.log)/" "$(address_in board.log)/" "$folder"
