#!/usr/bin/env bash
# Fine-tune with LoRA, and answer with the adapter.
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --split_dataset_ratio 0.05 --output_dir "$OUT/lora" \
  --tuner_type lora --lora_rank 8 --lora_alpha 32 --target_modules all-linear \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --learning_rate 1e-4 \
  --max_length 512 --eval_strategy steps "${small[@]}" "$@"

# --adapters is enough: the checkpoint's args.json names the model; --load_data_args answers the rows kept for evaluation
"$APUS" infer --adapters "$(newest "$OUT/lora")" --load_data_args true --temperature 0 --max_new_tokens 32 \
  --metric acc --result_path "$OUT/answers.jsonl" --resume false
