#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real model against llama.cpp: run.sh APUS WORK_FOLDER. asked.jsonl holds 20 questions and what llama.cpp (node-llama-cpp 3.22, one thread,
# F32 weights and cache) answers greedily with 64 tokens at most. APUS_REAL is the folder that `scripts/real-model DIR` filled.
set -euo pipefail
apus=$1 work=$2
rows=$(cd "$(dirname "$0")" && pwd)/asked.jsonl
model=${APUS_REAL:-}/SmolLM2-135M-Instruct.gguf
if [ -z "${APUS_REAL:-}" ] || [ ! -f "$model" ]; then
  echo "skipped: APUS_REAL names no folder with SmolLM2-135M-Instruct.gguf; scripts/real-model DIR brings it"
  exit 77
fi
rm -rf "$work" && mkdir -p "$work"
"$apus" infer --model "$model" --torch_dtype float32 --quant_compute exact --val_dataset "$rows" --temperature 0 --max_new_tokens 64 \
  --result_path "$work/answers.jsonl" --device cpu >"$work/infer.log" 2>&1 || { cat "$work/infer.log" >&2; exit 1; }
python3 - "$work/answers.jsonl" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
others = [row for row in rows if row["response"].strip() != row["labels"].strip()]
for row in others: print("here: %r\nllama.cpp: %r" % (row["response"], row["labels"]))
print(len(rows) - len(others), "of", len(rows), "answers are llama.cpp's")
sys.exit(len(rows) != 20 or bool(others))
P
