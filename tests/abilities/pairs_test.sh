#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pairs_test.sh APUS FOLDER: what `apus abilities` says, held against the program. What can be had makes two updates, or answers, in two processes;
# what cannot is refused with exit code 2 by --dry_run and tells why. Walked with each mesh, on tiny models:
#   every algorithm and kind of weights, on text (a mixture where experts are shared out);
#   every algorithm and kind of weights, on pictures;
#   every family, trained and answering.
# It takes half an hour: skipped, saying so, unless APUS_PAIRS=1 (all), or some of: text pictures families family:NAME.
set -euo pipefail
apus=$1 work=$2
data=$(cd "$(dirname "$0")/../data" && pwd)
. "$data/../tiny_models.sh"
[ -n "${APUS_PAIRS:-}" ] || { echo "SKIPPED: APUS_PAIRS=1 runs every pair of docs/abilities.md, in half an hour"; exit 77; }
[ "$APUS_PAIRS" != 1 ] || APUS_PAIRS="text pictures families"
rm -rf "$work" && mkdir -p "$work" && cd "$work"
export OMP_NUM_THREADS=1
make_tiny_models "$apus" float32
make_seeing_models "$apus" "$data"
python3 - <<'P'
import json
def talk(text): return [{"role": "user", "content": text}]
def write(name, rows): open(name, "w").write("".join(json.dumps(row) + "\n" for row in rows))
for kind, shows in (("text", [{"question": str(i)} for i in range(32)]),
                    ("pictures", [{"question": row["messages"][0]["content"], "images": row["images"]} for row in map(json.loads, open("seen.jsonl"))])):
    rows, texts = [], []
    for i, shown in enumerate(shows):
        asked, seen = talk(shown["question"]), {k: v for k, v in shown.items() if k == "images"}
        rows.append({"messages": asked + [{"role": "assistant", "content": f"it is {i}"}], "rejected_response": "no", "label": i % 2, **seen})
        texts.append({"messages": asked, "positive_messages": [talk(f"it is {i}")], "negative_messages": [talk("no")], **seen})
    write(f"{kind}.rows.jsonl", rows)
    if kind == "text":
        write("text.words.jsonl", [{"tokens": ["it", "is", str(i)], "ner_tags": [0, 1, i % 2]} for i in range(32)])
    write(f"{kind}.texts.jsonl", texts)
P

failed=0 ran=0 refused=0 apart=0
# held WHAT WAY COMMAND...: as the table says, which is yes or no in $possible.
held() {
  local what=$1 way=$2 code=0
  shift 2
  rm -rf out
  if [ "$possible" = yes ]; then
    ran=$((ran + 1))
    NPROC_PER_NODE=2 timeout 180 "$apus" "$@" > pair.log 2>&1 || code=$?
    [ "$code" != 0 ] || return 0
    # What only the rows decide is said when they are read.
    if [ "$code" = 2 ] && grep -q "ERROR.* has images, videos or sounds" pair.log; then ran=$((ran - 1)) refused=$((refused + 1)); return 0; fi
  else
    refused=$((refused + 1))
    NPROC_PER_NODE=2 timeout 60 "$apus" "$@" --dry_run true > pair.log 2>&1 || code=$?
    [ "$code" != 2 ] || return 0
  fi
  failed=$((failed + 1))
  echo "WRONG: $what with $way should be $possible, and ends with $code: apus $*"
  grep ERROR pair.log | head -3 || tail -3 pair.log
}
# trained KIND MODEL WHAT WAY FLAGS...: two updates.
trained() {
  local kind=$1 model=$2 what=$3 way=$4
  shift 4
  local -a command=("$@") rows=(--dataset "$kind.rows.jsonl")
  case $what in
    embedding | reranker) rows=(--dataset "$kind.texts.jsonl") ;;
    generative_reranker) rows=(--dataset "$kind.texts.jsonl") command+=(--reranker_positive_token a --reranker_negative_token b) ;;
    seq_cls) command+=(--num_labels 2) ;;
    token_cls) rows=(--dataset "$kind.words.jsonl") command+=(--num_labels 2) ;;
    gkd) command+=(--teacher_model "$model" --max_completion_length 8) ;;
    grpo) command+=(--reward_funcs format --num_generations 4 --max_completion_length 8) ;;
    ppo) command+=(--reward_funcs format --max_completion_length 8) ;;
  esac
  held "$what" "$way" "${command[@]}" --model "$model" --max_length 512 "${rows[@]}" --device cpu --output_dir out --add_version false --max_steps 2 \
    --save_strategy no --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --logging_steps 1 --report_to none
}
# every KIND MODEL OF_EXPERTS [ABOUT]: every algorithm and kind of weights with each mesh, as the table (of the model ABOUT) says.
every() {
  local kind=$1 words=$2 experts=$3 what way what_flags way_flags
  local -a about=(${4:+--model "$4"})
  while IFS=$'\t' read -r what way what_flags way_flags possible _; do
    local model=$words
    [ "$way" != experts ] || model=$experts
    case $what_flags in
      --model* | infer* | *token_cls) ;;  # words are labelled by encoders: family()
      --*) trained "$kind" "$model" "$what" "$way" sft $what_flags $way_flags ;;
      *) trained "$kind" "$model" "$what" "$way" $what_flags $way_flags ;;
    esac
  done < <("$apus" abilities "${about[@]}" --format tsv 2> about.log)
}
# family NAME: a checkpoint of random weights by the tests' config, trained by apus sft and asked by apus infer with each mesh.
family() {
  local name=$1 what way what_flags way_flags encoder=no
  # What sees or hears needs a tokenizer that knows its marks; `pictures` walks with two such models.
  if grep -qE '"(vision|vit|audio|thinker)_config"' "$data/models/$name/checkpoint/config.json"; then apart=$((apart + 1)); return; fi
  sed -E 's/"(padded_)?vocab_size(_per_layer_input)?": [0-9]+/"\1vocab_size\2": 2048/' "$data/models/$name/checkpoint/config.json" > family.json
  rm -rf family
  "$apus" init --config family.json --tokenizer words --output_dir family --torch_dtype float32 > init.log 2>&1 || { cat init.log; failed=$((failed + 1)); return; }
  "$apus" abilities --model family --rlhf_type dpo --format tsv | grep -q "encoders which give no words" && encoder=yes
  while IFS=$'\t' read -r what way what_flags way_flags possible _; do
    case $what in
      sft) trained text family "$name" "$way" sft $way_flags ;;
      embedding | token_cls) [ "$encoder" = no ] || trained text family "$what" "$way" $what_flags $way_flags ;;
      infer*) held "$name, answering" "$way" infer --model family --val_dataset text.rows.jsonl --val_dataset_sample 3 --max_new_tokens 4 \
                --device cpu --result_path out/answers.jsonl $way_flags ;;
    esac
  done < <("$apus" abilities --model family --format tsv 2> about.log)
}

for walk in $APUS_PAIRS; do
  case $walk in
    text) every text words moe ;;
    pictures) every pictures qwen3_vl qwen3_vl_moe qwen3_vl_moe ;;
    families) for folder in "$data"/models/*/checkpoint; do [ ! -f "$folder/config.json" ] || family "$(basename "$(dirname "$folder")")"; done ;;
    family:*) family "${walk#family:}" ;;
    *) echo "APUS_PAIRS: $walk is none of text, pictures, families, family:NAME"; exit 2 ;;
  esac
  echo "$walk: $ran pairs ran, $refused were refused, $failed are not as the table says; $apart families that see or hear were left out"
done
[ "$failed" -eq 0 ]
