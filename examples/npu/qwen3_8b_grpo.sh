#!/usr/bin/env bash
# GRPO of Qwen3-8B on questions with answers that can be checked: 32 questions an update, eight answers each. Every NPU rolls out
# its share with the engine that shares the trainer's weights; weights, gradients and state are shared out over all (zero3).
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen3-8B}
rows='{"messages": [{"role": "user", "content": "..."}], "solution": "42"}'

train rlhf qwen3-8b --rlhf_type grpo --tuner_type full --torch_dtype bfloat16 --deepspeed zero3 \
  --reward_funcs accuracy --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \
  --max_length 2048 --max_completion_length 4096 --temperature 1 --epsilon 0.2 --epsilon_high 0.28 --beta 0 \
  --learning_rate 1e-6 --lr_scheduler_type constant --weight_decay 0.1 --adam_beta2 0.98 \
  --log_completions true --save_steps 20 "$@"
