#!/usr/bin/env bash
# Several turns: a number from 1 to 9 is to be guessed in three turns, each told whether it was too low or too high
# (--environment guess_number). First the model sees games of somebody who guesses at random, then it plays by itself. The reward
# in the log is the share of games that were won: 0.3 by chance, seven ninths (0.78) at best. STEPS=200 learns to win nearly all that
# can be won. All answers of a group guess the same number, so many groups are asked at once: with 8 of them instead of 32 an update
# learns which numbers were asked rather than what "higher" means.
. "$(dirname "$0")/common.sh"
python3 "$here/digits.py" games 3000 1 > "$OUT/games.jsonl"
python3 "$here/digits.py" numbers 2000 2 > "$OUT/numbers.jsonl"
seen=() played=(--max_steps "${STEPS:-20}" --logging_steps 5)
[ ${#small[@]} -eq 0 ] || seen=(--max_steps 60 --save_steps 60 --logging_steps 20)

"$APUS" sft --model "$MODEL" --dataset "$OUT/games.jsonl" --output_dir "$OUT/sft" --tuner_type full --learning_rate 2e-3 \
  --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_length 256 --loss_scale default "${seen[@]}"

"$APUS" rlhf --rlhf_type grpo --model "$(newest "$OUT/sft")" --tuner_type full --dataset "$OUT/numbers.jsonl" \
  --output_dir "$OUT/grpo" --environment guess_number --max_turns 3 --max_completion_length 8 --num_generations 8 \
  --per_device_train_batch_size 256 --gradient_accumulation_steps 1 --temperature 1 --beta 0 --learning_rate 1e-3 \
  --entropy_coef 0.01 --lr_scheduler_type constant --save_strategy no --log_completions true "${played[@]}" "$@"
