#!/usr/bin/env bash
# A small Qwen3-VL learns from nothing to see shapes, by LoRA where they are, and by GRPO better from the overlap of its boxes alone.
# `examples/vision/learn.sh FOLDER`, on a processor in ten minutes. MODEL=DIR takes another model that sees instead of the small one
# (a Qwen3-VL of 2B knows shapes: the first lesson is left out); APUS=PROGRAM takes another program.
set -euo pipefail
out=$(realpath -m "${1:-output/vision}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
APUS=$(realpath -m "${APUS:-$here/../../build/apus}")
[ -x "$APUS" ] || APUS=apus

say() { printf '\n== %s\n' "$*"; }
run() {  # shows the command, then runs it
  printf '\n$ apus %s\n' "$*"
  "$APUS" "$@"
}
newest() { ls -d "$1"/v*/checkpoint-* | sort -V | tail -n 1; }
ask() {  # ask NAME --model DIR | --adapters DIR: about pictures that no training has seen; the mean overlap of boxes is said
  local name=$1
  shift
  run infer "$@" --val_dataset heldout.jsonl --temperature 0 --max_new_tokens 32 --metric iou --result_path "$name.jsonl" --resume false
}

say "Pictures of shapes"
python3 "$here/make_shapes.py" "$out"
cd "$out"
head -n 1 where.jsonl

if [ -z "${MODEL:-}" ]; then
  say "A small model learns what is there"
  run init --config small --tokenizer small --output_dir born --exist_ok true
  run sft --model born --dataset names.jsonl --tuner_type full --learning_rate 2e-3 --lr_scheduler_type cosine --warmup_ratio 0.05 \
    --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_steps "${SEE:-1200}" --gradient_checkpointing false \
    --split_dataset_ratio 0.02 --eval_steps 300 --save_steps 5000 --logging_steps 100 --freeze_vit false --freeze_aligner false --output_dir see
  MODEL=$(newest see)
fi

say "By LoRA it learns where things are"
ask before --model "$MODEL"
run sft --model "$MODEL" --dataset where.jsonl --lora_rank 32 --learning_rate 2e-3 --lr_scheduler_type cosine --warmup_ratio 0.05 \
  --freeze_vit false --freeze_aligner false --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_steps "${WHERE:-800}" \
  --gradient_checkpointing false --save_steps 5000 --logging_steps 100 --output_dir where
lora=$(newest where)
ask taught --adapters "$lora"

say "By GRPO it learns it better: eight boxes for each question, the reward of each is how well it covers the shape"
run rlhf --rlhf_type grpo --model "$MODEL" --adapters "$lora" --dataset where.jsonl --reward_funcs iou --freeze_vit false --freeze_aligner false \
  --learning_rate 2e-4 --lr_scheduler_type constant --beta 0 --num_generations 8 --per_device_train_batch_size 64 \
  --gradient_accumulation_steps 1 --max_completion_length 32 --temperature 1 --max_steps "${BETTER:-150}" --gradient_checkpointing false \
  --save_steps 5000 --logging_steps 10 --output_dir better
ask better --adapters "$(newest better)"

say "Done in $((SECONDS / 60)):$(printf %02d $((SECONDS % 60)))"
head -n 3 better.jsonl
