#!/usr/bin/env bash
# Plugins that were written in Python for ms-swift: a reward (--reward_funcs names) and an environment that asks again
# (--environment listener), both of examples/island/plugin.py, which python3 runs in a process of its own.
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/sft" --lora_rank 16 --learning_rate 1e-3 \
  --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
adapter=$(newest "$OUT/sft")

grpo() {
  "$APUS" rlhf --rlhf_type grpo --model "$MODEL" --adapters "$adapter" --ref_adapters "$adapter" --dataset "$DATA" \
    --external_plugins "$here/island/plugin.py" --reward_funcs names --num_generations 8 \
    --per_device_train_batch_size 16 --gradient_accumulation_steps 1 --max_completion_length 32 --temperature 1 \
    --learning_rate 2e-4 --log_completions true "${small[@]}" "$@"
}
grpo --output_dir "$OUT/grpo" "$@"
grpo --output_dir "$OUT/turns" --environment listener --max_turns 2 "$@"
