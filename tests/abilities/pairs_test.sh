#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pairs_test.sh APUS FOLDER: every pair of the tables that `apus abilities` shows of algorithms and kinds of weights. What can be had
# makes two updates in two processes on a tiny model, a mixture where experts are shared out; what cannot is refused with exit code 2 by --dry_run and tells why.
# It takes some minutes: skipped, saying so, unless APUS_PAIRS=1.
set -euo pipefail
. "$(dirname "$0")/../tiny_models.sh"
apus=$1 work=$2
[ "${APUS_PAIRS:-}" = 1 ] || { echo "SKIPPED: APUS_PAIRS=1 runs every pair of docs/abilities.md, in some minutes"; exit 77; }
rm -rf "$work" && mkdir -p "$work" && cd "$work"
export OMP_NUM_THREADS=1
make_tiny_models "$apus" float32
for i in $(seq 32); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"it is $i\"}], \"rejected_response\": \"no\", \"label\": $((i % 2))}" >> rows.jsonl
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}], \"positive_messages\": [[{\"role\": \"user\", \"content\": \"it is $i\"}]], \"negative_messages\": [[{\"role\": \"user\", \"content\": \"no\"}]]}" >> texts.jsonl
done

failed=0 ran=0 refused=0
pair() {  # WHAT WAY FLAGS... ; yes or no in $possible
  local what=$1 way=$2
  shift 2
  local -a command=("$@") rows=(--dataset rows.jsonl)
  local model=words
  [ "$way" != experts ] || model=moe
  case $what in
    embedding | reranker) rows=(--dataset texts.jsonl) ;;
    generative_reranker) rows=(--dataset texts.jsonl) command+=(--reranker_positive_token a --reranker_negative_token b) ;;
    seq_cls) command+=(--num_labels 2) ;;
    gkd) command+=(--teacher_model "$model" --max_completion_length 8) ;;
    grpo) command+=(--reward_funcs format --num_generations 4 --max_completion_length 8) ;;
    ppo) command+=(--reward_funcs format --max_completion_length 8) ;;
  esac
  command+=(--model "$model" --max_length 512 "${rows[@]}" --device cpu --output_dir out --add_version false --max_steps 2 --save_strategy no
            --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --logging_steps 1 --report_to none)
  rm -rf out
  local code=0
  if [ "$possible" = yes ]; then
    NPROC_PER_NODE=2 timeout 120 "$apus" "${command[@]}" > pair.log 2>&1 || code=$?
    ran=$((ran + 1))
    [ "$code" = 0 ] && return
  else
    NPROC_PER_NODE=2 timeout 60 "$apus" "${command[@]}" --dry_run true > pair.log 2>&1 || code=$?
    refused=$((refused + 1))
    [ "$code" = 2 ] && return
  fi
  failed=$((failed + 1))
  echo "WRONG: $what with $way should be $possible, and ends with $code: apus ${command[*]}"
  grep ERROR pair.log | head -3 || tail -3 pair.log
}

while IFS=$'\t' read -r what way what_flags way_flags possible _; do
  case $what in infer*) continue ;; esac
  case $what_flags in
    --model*) continue ;;       # families: their shapes are too large for this
    --*) pair "$what" "$way" sft $what_flags $way_flags ;;
    *) pair "$what" "$way" $what_flags $way_flags ;;
  esac
done < <("$apus" abilities --format tsv)
echo "$ran pairs ran, $refused were refused, $failed are not as the table says"
[ "$failed" -eq 0 ]
