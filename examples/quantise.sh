#!/usr/bin/env bash
# Write a model with 4-bit weights, calibrated with rows like those that it will answer, and ask it.
. "$(dirname "$0")/common.sh"

"$APUS" export --model "$MODEL" --quant_method "${METHOD:-gptq}" --quant_bits 4 --group_size 64 --dataset "$DATA" \
  --max_length 256 --output_dir "$OUT/quantised" --exist_ok true "$@"
"$APUS" infer --model "$OUT/quantised" --val_dataset "$here/island/heldout.jsonl" --val_dataset_sample 4 --temperature 0 \
  --max_new_tokens 16 --resume false --result_path "$OUT/answers.jsonl"
