#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# npu.sh EXAMPLES SIM_FOLDER WORK: each recipe for a node of NPUs passes --dry_run on the simulated node, with a small model of its family
# and rows of its kind in place of the hub's, and fits into 8 x 64 GB with the model's own shape.
set -euo pipefail
examples=$1 sim=$2 work=$3
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../data
. "$here/../tiny_models.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }
rm -rf "$work" && mkdir -p "$work" && cd "$work"
make_tiny_models "$APUS" bfloat16
make_seeing_models "$APUS" "$data"
for i in $(seq 64); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"it is $i\"}], \"solution\": \"$i\"}" >>text.jsonl
done
sed 's/"images"/"solution": "1", "images"/' seen.jsonl >pictures.jsonl
for recipe in "$examples"/npu/qwen*.sh; do
  name=$(basename "$recipe")
  case $name in
    *_vl_*) model=qwen3_vl rows=pictures.jsonl ;;
    *a3b*) model=moe8 rows=text.jsonl ;;
    *) model=words rows=text.jsonl ;;
  esac
  if [ "$model" = moe8 ] && [ ! -d moe8 ]; then  # as many experts as devices
    sed 's/"num_experts": 4/"num_experts": 8/' moe.json >moe8.json
    "$APUS" init --config moe8.json --tokenizer words --output_dir moe8 >made.log 2>&1
  fi
  MODEL=$model DATA=$rows OUT=out LD_LIBRARY_PATH=$sim APUS_SIM_MEMORY=68719476736 \
    "$recipe" --device npu --dry_run true >said.log 2>&1 || { cat said.log >&2; fail "$name --dry_run true"; }
  grep -q "It fits" said.log || { cat said.log >&2; fail "$name does not say that it fits"; }
  PLAN=1 "$recipe" >plan.log 2>&1 || { cat plan.log >&2; fail "$name: its own shape"; }
  grep "^ *peak" plan.log | sed "s/^/$name: /"
done
