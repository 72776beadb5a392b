#!/usr/bin/env bash
# A reward model: a model of words gets a head that gives one number, higher for the chosen answer of a pair. What is saved
# is a checkpoint of HuggingFace's kind (...ForSequenceClassification, score.weight), and training can go on from it. Without
# PAIRS the pairs are sorted digits and badly sorted ones, which a model of random weights learns to tell apart: the last
# line of the evaluation says how often, on pairs that it was not taught.
. "$(dirname "$0")/common.sh"
PAIRS=${PAIRS:-$OUT/pairs.jsonl}
held=(--split_dataset_ratio 0.1)
if [ ! -f "$PAIRS" ]; then
  python3 "$here/digits.py" pairs 4000 1 > "$PAIRS"
  python3 "$here/digits.py" pairs 200 2 > "$OUT/held-pairs.jsonl"
fi
[ ! -f "$OUT/held-pairs.jsonl" ] || held=(--val_dataset "$OUT/held-pairs.jsonl" --per_device_eval_batch_size 32)
[ ${#small[@]} -eq 0 ] || small=(--max_steps 100 --save_steps 100 --eval_steps 50 --logging_steps 50 --warmup_ratio 0.05)

"$APUS" rlhf --rlhf_type rm --model "$MODEL" --dataset "$PAIRS" --output_dir "$OUT/rm" --tuner_type full \
  --learning_rate 1e-3 --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_length 512 \
  --center_rewards_coefficient 0.01 "${held[@]}" "${small[@]}" "$@"
[ ${#small[@]} -eq 0 ] || small=(--max_steps 6 --save_steps 6 --logging_steps 2)
"$APUS" rlhf --rlhf_type rm --model "$(newest "$OUT/rm")" --dataset "$PAIRS" --output_dir "$OUT/rm-lora" \
  --learning_rate 1e-4 --per_device_train_batch_size 8 --max_length 512 "${small[@]}" "$@"
