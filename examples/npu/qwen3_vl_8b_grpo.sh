#!/usr/bin/env bash
# GRPO of Qwen3-VL-8B on geometry in pictures (problem, answer, images), with the settings of slime's patch for NPUs: 16 questions an
# update, eight answers of up to 4096 tokens; the tower stays as it is.
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen3-VL-8B-Instruct}
rows='{"messages": [{"role": "user", "content": "<image>..."}], "images": ["a.png"], "solution": "42"}'

train rlhf qwen3-vl-8b --rlhf_type grpo --tuner_type full --freeze_vit true --torch_dtype bfloat16 --deepspeed zero3 \
  --reward_funcs accuracy --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 2 \
  --max_length 4096 --max_pixels 1003520 --max_completion_length 4096 --temperature 1 --epsilon 0.2 --epsilon_high 0.28 --beta 0 \
  --learning_rate 1e-6 --lr_scheduler_type constant --weight_decay 0.1 --adam_beta2 0.98 \
  --log_completions true --save_steps 20 "$@"
