#!/usr/bin/env bash
# LoRA of Qwen2.5-7B on rows that are packed into 8192 tokens, a copy of the model on each of eight NPUs.
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct} DATA=${DATA:-AI-ModelScope/alpaca-gpt4-data-en#5000}

train sft qwen2.5-7b --tuner_type lora --lora_rank 16 --lora_alpha 32 --target_modules all-linear --torch_dtype bfloat16 \
  --packing true --max_length 8192 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 \
  --learning_rate 1e-4 --warmup_ratio 0.05 --num_train_epochs 1 --split_dataset_ratio 0.01 --eval_steps 50 --save_steps 50 "$@"
