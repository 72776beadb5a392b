#!/usr/bin/env bash
# Distillation: a teacher learns the rows (sft, all weights); a student that knows nothing learns the teacher's probabilities,
# half of the updates on answers of its own.
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/teacher" --tuner_type full --learning_rate 1e-3 \
  --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
teacher=$(newest "$OUT/teacher")

"$APUS" rlhf --rlhf_type gkd --model "$MODEL" --teacher_model "$teacher" --dataset "$DATA" --output_dir "$OUT/gkd" \
  --tuner_type full --learning_rate 1e-3 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --lmbda 0.5 \
  --beta 0.5 --max_completion_length 32 --max_length 512 "${small[@]}" "$@"
