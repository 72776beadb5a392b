#!/usr/bin/env bash
# LoRA on all matrices of Qwen3-30B-A3B, experts too: each NPU holds sixteen experts of every layer and reads rows of its own.
. "$(dirname "$0")/common.sh"
MODEL=${MODEL:-Qwen/Qwen3-30B-A3B-Instruct-2507} DATA=${DATA:-AI-ModelScope/alpaca-gpt4-data-en#5000}

train sft qwen3-30b-a3b --tuner_type lora --lora_rank 8 --lora_alpha 32 --target_modules all-linear --torch_dtype bfloat16 \
  --expert_model_parallel_size 8 --router_aux_loss_coef 1e-3 \
  --packing true --max_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 \
  --learning_rate 1e-4 --warmup_ratio 0.05 --num_train_epochs 1 --save_steps 50 "$@"
