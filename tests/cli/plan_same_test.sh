#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plan_same_test.sh APUS FOLDER: `apus plan` and --dry_run print the same plan for the same flags, whatever is trained. The rows
# are longer than --max_length, which a plan takes for the longest row.
set -euo pipefail
. "$(dirname "$0")/../tiny_models.sh"
apus=$1 work=$2
rm -rf "$work" && mkdir -p "$work" && cd "$work"
export OMP_NUM_THREADS=1
make_tiny_models "$apus" bfloat16
long="tell me about numbers, one after the other, and about what comes behind each of them, until there is nothing left that could be told of any of them at all, and then begin anew with the first one, for as long as it takes"
for i in $(seq 24); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"$i: $long\"}]}" >> sft.jsonl
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"yes $i $long\"}], \"rejected_response\": \"no $i $long\"}" >> pairs.jsonl
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"$long\"}], \"label\": $((i % 2))}" >> labels.jsonl
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i $long\"}]}" >> questions.jsonl
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i $long\"}], \"positive_messages\": [[{\"role\": \"user\", \"content\": \"$i $long\"}]]}" >> texts.jsonl
done

# From the line that tells the model and its parameters to the line that tells whether it fits.
plan_of() { sed -n '/ parameters, .* trained (/,/^It \(fits\|does not fit\)/p' "$1" | grep -v "^It fits" ; }
count=0 differ=0
# same COMMAND ROWS FLAG...
same() {
  local command=$1 rows=$2 cut=right
  [ "$rows" != questions.jsonl ] || cut=left  # the end of a question is what is answered
  shift 2
  count=$((count + 1))
  "$apus" $command --dataset "$rows" --max_length 48 --truncation_strategy "$cut" --output_dir out --device cpu --dry_run true "$@" > dry.log 2>&1 || true
  local as=()
  [ "$command" = sft ] || as=(--command "$command")
  "$apus" plan "${as[@]}" --max_length 48 --device cpu "$@" > plan.log 2>&1 || true
  plan_of dry.log > dry.txt || true
  plan_of plan.log > plan.txt || true
  if [ ! -s plan.txt ] || ! cmp -s dry.txt plan.txt; then
    differ=$((differ + 1))
    echo "DIFFERENT: $command $*"
    if [ -s plan.txt ] && [ -s dry.txt ]; then diff dry.txt plan.txt || true; else grep ERROR dry.log plan.log || tail -3 dry.log plan.log; fi
  fi
}

for model in words moe; do
  same sft sft.jsonl --model $model
  same sft sft.jsonl --model $model --tuner_type full
  same sft sft.jsonl --model $model --tuner_type full --optim adamw_8bit --master_weights none
  same sft sft.jsonl --model $model --quant_method bnb --quant_bits 4
  same sft sft.jsonl --model $model --per_device_train_batch_size 4 --gradient_accumulation_steps 2
  same pt sft.jsonl --model $model --packing true
  same rlhf pairs.jsonl --model $model --rlhf_type dpo
  same rlhf labels.jsonl --model $model --rlhf_type kto
  same rlhf questions.jsonl --model $model --rlhf_type grpo --reward_funcs format --num_generations 4 --per_device_train_batch_size 4 --max_completion_length 32
done
for optim in adafactor sgd lion ademamix soap lion_8bit rmsprop adagrad stable_adamw; do same sft sft.jsonl --model words --tuner_type full --optim $optim; done
same sft sft.jsonl --model words --tuner_type full --optimizer muon
same sft sft.jsonl --model words --tuner_type full --update_in_backward true --max_grad_norm 0 --gradient_accumulation_steps 1
same sft sft.jsonl --model words --gradient_checkpointing false
same sft sft.jsonl --model words --recompute_granularity selective --recompute_modules mlp
same sft sft.jsonl --model words --use_dora true
same sft sft.jsonl --model words --tuner_type adalora
same sft sft.jsonl --model words --tuner_type bone
same sft sft.jsonl --model words --lora_rank 32 --target_modules q_proj v_proj
same sft sft.jsonl --model words --torch_dtype float32
same sft sft.jsonl --model words --quant_method hqq --quant_bits 4
same sft sft.jsonl --model words --packing true --packing_length 96
same sft sft.jsonl --model words --freeze_parameters_ratio 0.5 --tuner_type full
for type in cpo orpo simpo rm; do same rlhf pairs.jsonl --model words --rlhf_type $type; done
same rlhf pairs.jsonl --model words --rlhf_type dpo --tuner_type full
same rlhf pairs.jsonl --model words --rlhf_type dpo --tuner_type full --precompute_ref_log_probs true
same rlhf sft.jsonl --model words --rlhf_type gkd --teacher_model words
same rlhf questions.jsonl --model words --rlhf_type ppo --reward_funcs format
same sft labels.jsonl --model words --task_type seq_cls --num_labels 2
same sft texts.jsonl --model words --task_type embedding
echo "$count sets of flags, $differ plans that differ"
[ "$differ" -eq 0 ]
