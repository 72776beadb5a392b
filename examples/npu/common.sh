# Sourced by the recipes for a node of eight Ascend NPUs with 64 GB each (910B, CANN sourced: docs/devices.md).
#   examples/npu/qwen3_8b_grpo.sh                     # on the node; MODEL=DIR DATA=rows.jsonl OUT=out name your own
#   examples/npu/qwen3_8b_grpo.sh --dry_run true      # everything that can be checked beforehand, and whether it fits
#   PLAN=1 examples/npu/qwen3_8b_grpo.sh              # the same plan from the shape alone, on any machine
# What follows on the command line is handed on and wins over the recipe's settings.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rows='{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
if [ -z "${APUS:-}" ]; then APUS=$here/../../build/apus; [ -x "$APUS" ] || APUS=apus; fi
OUT=${OUT:-output/$(basename "$0" .sh)}
export NPROC_PER_NODE=${NPROC_PER_NODE:-8}
# Ranks that read large files may come late to the first collective.
export HCCL_CONNECT_TIMEOUT=${HCCL_CONNECT_TIMEOUT:-600}

# train COMMAND SHAPE FLAGS...: SHAPE is the model's name for `apus plan`.
train() {
  local command=$1 shape=$2
  shift 2
  if [ -n "${PLAN:-}" ]; then
    unset NPROC_PER_NODE
    exec "$APUS" plan --command "$command" --preset "$shape" --device 910B3 --devices 8 "$@"
  fi
  if [ -z "${DATA:-}" ]; then
    echo "DATA=rows.jsonl is needed: $rows" >&2
    exit 2
  fi
  exec "$APUS" "$command" --model "$MODEL" --dataset "$DATA" --output_dir "$OUT" "$@"
}
