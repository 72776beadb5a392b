#!/usr/bin/env bash
# Model and rows from a hub by their ids. They are downloaded once, into the cache folder of the hub's own tools.
#   MODEL=Qwen/Qwen2.5-0.5B-Instruct DATA=owner/name:subset#500 examples/hub.sh          # ModelScope
#   USE_HF=1 MODEL=... DATA=... HF_TOKEN=... HF_ENDPOINT=... examples/hub.sh             # HuggingFace, or a mirror of it
# HF_HUB_OFFLINE=1 uses only what is in the cache; --model_revision and --hub_token are there too.
MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
DATA=${DATA:-AI-ModelScope/alpaca-gpt4-data-en#500}
. "$(dirname "$0")/common.sh"

"$APUS" sft --model "$MODEL" --dataset "$DATA" --tuner_type lora --output_dir "$OUT/hub" --num_train_epochs 1 "$@"
