#!/usr/bin/env bash
# Several turns: a number from 1 to 9 is to be guessed in three turns, each told whether it was too low or too high
# (--environment guess_number). First the model sees games of somebody who guesses at random, then it plays by itself. The reward
# in the log is the share of games that were won: 0.3 by chance, seven ninths at best. STEPS=400 plays longer.
. "$(dirname "$0")/common.sh"
python3 "$here/digits.py" games 3000 1 > "$OUT/games.jsonl"
python3 "$here/digits.py" numbers 2000 2 > "$OUT/numbers.jsonl"
seen=() played=(--max_steps "${STEPS:-20}" --logging_steps 5)
[ ${#small[@]} -eq 0 ] || seen=(--max_steps 60 --save_steps 60 --logging_steps 20)

"$APUS" sft --model "$MODEL" --dataset "$OUT/games.jsonl" --output_dir "$OUT/sft" --tuner_type full --learning_rate 2e-3 \
  --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_length 256 --loss_scale default "${seen[@]}"

"$APUS" rlhf --rlhf_type grpo --model "$(newest "$OUT/sft")" --tuner_type full --dataset "$OUT/numbers.jsonl" \
  --output_dir "$OUT/grpo" --environment guess_number --max_turns 3 --max_completion_length 8 --num_generations 16 \
  --per_device_train_batch_size 128 --gradient_accumulation_steps 1 --temperature 1 --beta 0 --learning_rate 3e-4 \
  --lr_scheduler_type constant --save_strategy no --log_completions true "${played[@]}" "$@"
