#!/usr/bin/env bash
# The same real model learns the same task from rewards alone, with no answer shown to it: GRPO with reward.py. It is asked about 50
# sentences before and after; the curve of its rewards is a picture. `examples/ages/grpo.sh FOLDER`; MODEL=DIR takes another model,
# APUS=PROGRAM another program.
set -euo pipefail
out=${1:-output/real-grpo}
. "$(dirname "$0")/common.sh"

ask before --model "$MODEL"
run rlhf --rlhf_type grpo --model "$MODEL" --dataset $rows/train.jsonl --reward_funcs "$reward" --tuner_type lora --lora_rank 16 \
  --learning_rate "${RATE:-2e-4}" --lr_scheduler_type constant --beta 0 --num_generations 8 --per_device_train_batch_size 64 \
  --gradient_accumulation_steps 1 --max_completion_length 48 --temperature 1 --max_steps "${STEPS:-30}" --gradient_checkpointing false \
  --logging_steps 1 --save_strategy epoch --output_dir "$out/grpo"
ask after --adapters "$out/grpo"

printf '\n== Done in %d:%02d\n' $((SECONDS / 60)) $((SECONDS % 60))
for name in before after; do echo "$name $(right $name) of 50 right"; done
echo "curves: $(ls -d "$out"/grpo/*/images | tail -n 1)"
