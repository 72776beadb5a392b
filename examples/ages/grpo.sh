#!/usr/bin/env bash
# The same real model learns the same task from rewards alone, with no answer shown to it: GRPO with reward.py. It is asked about 50
# sentences before and after; the curve of its rewards is a picture. `examples/ages/grpo.sh FOLDER`; MODEL=DIR takes another model,
# APUS=PROGRAM another program.
set -euo pipefail
cd "$(dirname "$0")/../.."
APUS=${APUS:-build/apus}
[ -x "$APUS" ] || APUS=apus
out=${1:-output/real-grpo}
rows=examples/ages
reward="external:./$rows/reward.py"  # 1: right; 0.5: right, and more is said; 0.1: other JSON
mkdir -p "$out"

run() {  # shows the command, then runs it
  printf '\n$ apus %s\n' "$*"
  "$APUS" "$@"
}
ask() {  # ask NAME --model DIR | --adapters DIR: about the sentences that no training has seen
  local name=$1
  shift
  run infer "$@" --val_dataset $rows/heldout.jsonl --temperature 0 --max_new_tokens 48 --metric "$reward" --result_path "$out/$name.jsonl" \
    --resume false
}
right() { python3 -c 'import json, sys; print(sum(r["response"] == r["labels"] for r in map(json.loads, open(sys.argv[1]))))' "$out/$1.jsonl"; }

if [ -z "${MODEL:-}" ]; then
  scripts/real-model "$out"
  MODEL=$out/SmolLM2-135M-Instruct.gguf
fi
ask before --model "$MODEL"
run rlhf --rlhf_type grpo --model "$MODEL" --dataset $rows/train.jsonl --reward_funcs "$reward" --tuner_type lora --lora_rank 16 \
  --learning_rate "${RATE:-2e-4}" --lr_scheduler_type constant --beta 0 --num_generations 8 --per_device_train_batch_size 64 \
  --gradient_accumulation_steps 1 --max_completion_length 48 --temperature 1 --max_steps "${STEPS:-30}" --gradient_checkpointing false \
  --logging_steps 1 --save_strategy epoch --output_dir "$out/grpo"
ask after --adapters "$out/grpo"

printf '\n== Done in %d:%02d\n' $((SECONDS / 60)) $((SECONDS % 60))
for name in before after; do echo "$name $(right $name) of 50 right"; done
echo "curves: $(ls -d "$out"/grpo/*/images | tail -n 1)"
