#!/usr/bin/env bash
# Fold an adapter into the model's weights, tensor by tensor, and use the result as any other checkpoint.
. "$(dirname "$0")/common.sh"

if [ -z "${ADAPTER:-}" ]; then
  "$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/lora" --learning_rate 1e-3 "${small[@]}" "$@"
  ADAPTER=$(newest "$OUT/lora")
fi
"$APUS" merge-lora --adapters "$ADAPTER" --output_dir "$OUT/merged" --exist_ok true

ask=(--val_dataset "$here/island/heldout.jsonl" --val_dataset_sample 4 --temperature 0 --max_new_tokens 16 --resume false)
"$APUS" infer --adapters "$ADAPTER" "${ask[@]}" --result_path "$OUT/with_adapter.jsonl"
"$APUS" infer --model "$OUT/merged" "${ask[@]}" --result_path "$OUT/merged.jsonl"
cmp "$OUT/with_adapter.jsonl" "$OUT/merged.jsonl" && echo "the merged model answers as the adapter did"
