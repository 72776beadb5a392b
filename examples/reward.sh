#!/usr/bin/env bash
# A reward model: a model of words gets a head that gives one number, higher for the chosen answer of a pair. What is saved
# is a checkpoint of HuggingFace's kind (...ForSequenceClassification, score.weight), and training can go on from it.
. "$(dirname "$0")/common.sh"
PAIRS=${PAIRS:-$here/island/pairs.jsonl}

"$APUS" rlhf --rlhf_type rm --model "$MODEL" --dataset "$PAIRS" --output_dir "$OUT/rm" --tuner_type full \
  --learning_rate 1e-4 --per_device_train_batch_size 8 --max_length 512 --center_rewards_coefficient 0.01 \
  --split_dataset_ratio 0.1 "${small[@]}" "$@"
"$APUS" rlhf --rlhf_type rm --model "$(newest "$OUT/rm")" --dataset "$PAIRS" --output_dir "$OUT/rm-lora" \
  --learning_rate 1e-4 --per_device_train_batch_size 8 --max_length 512 "${small[@]}" "$@"
