#!/usr/bin/env bash
# examples/hub.sh on a cache folder as HuggingFace's own tools leave it, without a network.
set -euo pipefail
examples=$1
export HF_HUB_CACHE=$OUT/cache HF_HUB_OFFLINE=1 USE_HF=1
rm -rf "$OUT"

in_cache() {  # in_cache KIND--OWNER--NAME FILE...: a repository at one revision
  local folder=$HF_HUB_CACHE/$1 commit=0123456789abcdef0123456789abcdef01234567
  shift
  mkdir -p "$folder/refs" "$folder/snapshots/$commit"
  printf %s "$commit" >"$folder/refs/main"
  cp "$@" "$folder/snapshots/$commit/"
}
"$APUS" init --config "$examples/island" --tokenizer "$examples/island" --output_dir "$OUT/model" --torch_dtype float32
in_cache models--island--tiny "$OUT"/model/*
in_cache datasets--island--questions "$examples/island/questions.jsonl"

MODEL=island/tiny DATA='island/questions#32' "$examples/hub.sh" --max_steps 2 --per_device_train_batch_size 2
ls "$OUT"/hub/v0-*/checkpoint-2/adapter_model.safetensors
