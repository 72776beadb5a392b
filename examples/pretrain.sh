#!/usr/bin/env bash
# Go on pre-training on plain text: whole rows packed into sequences of one length; the rows are encoded once beforehand.
. "$(dirname "$0")/common.sh"

"$APUS" export --to_cached_dataset true --model "$MODEL" --dataset "$TEXTS" --use_chat_template false --loss_scale all \
  --split_dataset_ratio 0.02 --output_dir "$OUT/cache" --exist_ok true

"$APUS" pt --model "$MODEL" --cached_dataset "$OUT/cache/train" --cached_val_dataset "$OUT/cache/val" \
  --output_dir "$OUT/pt" --tuner_type full --packing true --packing_length 256 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --learning_rate 1e-4 --num_train_epochs 1 \
  "${small[@]}" "$@"
