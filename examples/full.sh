#!/usr/bin/env bash
# Fine-tune all weights in little memory: layers are recomputed, AdamW's states have 8 bits, and bfloat16 weights are
# rounded stochastically instead of being kept a second time in float32.
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/full" --tuner_type full \
  --torch_dtype bfloat16 --optim adamw_8bit --master_weights stochastic --gradient_checkpointing true \
  --per_device_train_batch_size 4 --learning_rate 1e-5 --warmup_ratio 0.05 --max_length 512 \
  --save_total_limit 2 "${small[@]}" "$@"

"$APUS" infer --model "$(newest "$OUT/full")" --val_dataset "$here/island/heldout.jsonl" --val_dataset_sample 4 \
  --temperature 0 --max_new_tokens 16 --result_path "$OUT/answers.jsonl" --resume false
