#!/usr/bin/env bash
# All weights of Qwen3-32B on one node: weights, gradients and moments are shared out over eight NPUs, moments in eight bits,
# without copies of the weights in f32.
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen3-32B} DATA=${DATA:-AI-ModelScope/alpaca-gpt4-data-en#5000}

train sft qwen3-32b --tuner_type full --torch_dtype bfloat16 --deepspeed zero3 --optim adamw_8bit \
  --packing true --max_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \
  --learning_rate 1e-5 --warmup_ratio 0.05 --num_train_epochs 1 --save_steps 100 "$@"
