#!/usr/bin/env bash
# Preferences without a reference model (orpo, simpo, cpo), and judgements of single answers (kto).
. "$(dirname "$0")/common.sh"
PAIRS=${PAIRS:-$here/island/pairs.jsonl}
JUDGED=${JUDGED:-$here/island/judged.jsonl}

for type in orpo simpo cpo; do
  "$APUS" rlhf --rlhf_type "$type" --model "$MODEL" --dataset "$PAIRS" --output_dir "$OUT/$type" \
    --learning_rate 5e-4 --per_device_train_batch_size 8 --max_length 512 "${small[@]}" "$@"
done
"$APUS" rlhf --rlhf_type kto --model "$MODEL" --dataset "$JUDGED" --output_dir "$OUT/kto" \
  --learning_rate 5e-4 --per_device_train_batch_size 8 --max_length 512 "${small[@]}" "$@"
