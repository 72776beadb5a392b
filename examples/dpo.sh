#!/usr/bin/env bash
# Direct preference optimisation: first the chosen answers are learnt (sft), then chosen from rejected (dpo). The adapter of
# the first run is what the second trains further and, as --ref_adapters, what it is compared with.
. "$(dirname "$0")/common.sh"
PAIRS=${PAIRS:-$here/island/pairs.jsonl}

"$APUS" sft --model "$MODEL" --dataset "$PAIRS" --output_dir "$OUT/sft" --lora_rank 16 --learning_rate 1e-3 \
  --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
adapter=$(newest "$OUT/sft")

"$APUS" rlhf --rlhf_type dpo --model "$MODEL" --adapters "$adapter" --ref_adapters "$adapter" --dataset "$PAIRS" \
  --output_dir "$OUT/dpo" --beta 0.1 --learning_rate 5e-4 --per_device_train_batch_size 8 --max_length 512 \
  --split_dataset_ratio 0.1 "${small[@]}" "$@"
