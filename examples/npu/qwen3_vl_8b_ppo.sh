#!/usr/bin/env bash
# PPO of Qwen3-VL-8B on the same rows: a critic of the same size with a rate of its own, both shared out over all eight.
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen3-VL-8B-Instruct}
rows='{"messages": [{"role": "user", "content": "<image>..."}], "images": ["a.png"], "solution": "42"}'

train rlhf qwen3-vl-8b --rlhf_type ppo --tuner_type lora --lora_rank 64 --lora_alpha 128 --torch_dtype bfloat16 --deepspeed zero3 \
  --reward_funcs accuracy --per_device_train_batch_size 4 --gradient_accumulation_steps 4 \
  --max_length 4096 --max_pixels 1003520 --max_completion_length 4096 --temperature 1 --cliprange 0.2 --kl_coef 0 \
  --learning_rate 1e-5 --lr_scheduler_type constant --save_steps 20 "$@"
