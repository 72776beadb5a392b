# Sourced by the recipes: which program, checkpoint, rows and folder they work with. Without settings they run on the small
# island next to this file, with a checkpoint of random weights; with your own:
#   MODEL=/models/qwen3-0.6b DATA=rows.jsonl OUT=out examples/lora.sh --num_train_epochs 1
# What follows on the command line is handed on to the training command and wins over the recipe's settings.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${APUS:-}" ]; then APUS=$here/../build/apus; [ -x "$APUS" ] || APUS=apus; fi
OUT=${OUT:-output/$(basename "$0" .sh)}
DATA=${DATA:-$here/island/questions.jsonl}
TEXTS=${TEXTS:-$here/island/texts.jsonl}
mkdir -p "$OUT"
if [ -z "${MODEL:-}" ]; then
  MODEL=$OUT/model
  [ -f "$MODEL/model.safetensors" ] ||
    "$APUS" init --config "$here/island" --tokenizer "$here/island" --output_dir "$MODEL" --torch_dtype float32 --exist_ok true
  small=(--max_steps 6 --save_steps 3 --logging_steps 2)  # a try; your own model gets the defaults
fi
small=("${small[@]:-}")
[ -n "${small[0]}" ] || small=()

newest() { ls -d "$1"/v*/checkpoint-* | sort -V | tail -n 1; }  # the last checkpoint of the last run
