#!/usr/bin/env bash
# Group relative policy optimisation: several answers to each question, rewarded by a program (examples/island/reward.py), of
# which the better ones become likelier. First the model learns to answer at all (sft).
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/sft" --lora_rank 16 --learning_rate 1e-3 \
  --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
adapter=$(newest "$OUT/sft")

"$APUS" rlhf --rlhf_type grpo --model "$MODEL" --adapters "$adapter" --ref_adapters "$adapter" --dataset "$DATA" \
  --output_dir "$OUT/grpo" --reward_funcs "external:python3 $here/island/reward.py" --num_generations 8 \
  --per_device_train_batch_size 16 --gradient_accumulation_steps 1 --max_completion_length 32 --temperature 1 \
  --learning_rate 2e-4 --log_completions true "${small[@]}" "$@"
