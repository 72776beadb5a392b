#!/usr/bin/env bash
# PPO with a reward model: the model learns to answer (sft), a reward model learns from pairs which answers are good (rm), and
# PPO makes those likelier, with a critic that begins as the reward model.
. "$(dirname "$0")/common.sh"
PAIRS=${PAIRS:-$here/island/pairs.jsonl}

"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/sft" --tuner_type full --learning_rate 1e-3 \
  --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
answering=$(newest "$OUT/sft")
"$APUS" rlhf --rlhf_type rm --model "$answering" --dataset "$PAIRS" --output_dir "$OUT/rm" --tuner_type full \
  --learning_rate 3e-4 --per_device_train_batch_size 8 --max_length 512 "${small[@]}"
judge=$(newest "$OUT/rm")

"$APUS" rlhf --rlhf_type ppo --model "$answering" --reward_model "$judge" --dataset "$DATA" --output_dir "$OUT/ppo" \
  --learning_rate 3e-4 --critic_learning_rate 3e-4 --per_device_train_batch_size 16 --gradient_accumulation_steps 2 \
  --num_ppo_epochs 2 --critic_warmup_rounds 1 --max_completion_length 32 --temperature 1 \
  --missing_eos_penalty 1 --log_completions true "${small[@]}" "$@"
