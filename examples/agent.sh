#!/usr/bin/env bash
# A program that asks the model by OpenAI's API learns as it is (--environment agent:PROGRAM): the game of turns.sh, played by
# agent/guess.py. AGENT="node examples/agent/guess.mjs" plays it with OpenAI's own client (npm install openai). The reward in
# the log is the share of games that were won: 0.3 by chance. STEPS=200 learns it, as turns.sh does.
. "$(dirname "$0")/common.sh"
python3 "$here/digits.py" games 3000 1 > "$OUT/games.jsonl"
python3 "$here/digits.py" numbers 2000 2 > "$OUT/numbers.jsonl"
seen=() played=(--max_steps "${STEPS:-3}" --logging_steps 1)
[ ${#small[@]} -eq 0 ] || seen=(--max_steps 60 --save_steps 60 --logging_steps 20)

"$APUS" sft --model "$MODEL" --dataset "$OUT/games.jsonl" --output_dir "$OUT/sft" --tuner_type full --learning_rate 2e-3 \
  --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --max_length 256 --loss_scale default "${seen[@]}"

"$APUS" rlhf --rlhf_type grpo --model "$(newest "$OUT/sft")" --tuner_type full --dataset "$OUT/numbers.jsonl" \
  --output_dir "$OUT/grpo" --environment "agent:${AGENT:-python3 $here/agent/guess.py}" --max_turns 4 --max_completion_length 8 \
  --num_generations 8 --per_device_train_batch_size "${EPISODES:-64}" --gradient_accumulation_steps 1 --temperature 1 --beta 0 \
  --learning_rate 1e-3 --entropy_coef 0.01 --lr_scheduler_type constant --save_strategy no --log_completions true "${played[@]}" "$@"
