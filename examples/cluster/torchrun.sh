#!/usr/bin/env bash
# torchrun starts the ranks and starts all again when one fails, at most three times: the same on each machine,
#   NNODES=2 MASTER_ADDR=node1 examples/cluster/torchrun.sh --model DIR --dataset rows.jsonl --output_dir OUT ...
# --no-python: what runs is the program, which goes on from its newest checkpoint.
set -euo pipefail
exec torchrun --no-python --nnodes "${NNODES:-1}" --nproc-per-node "${NPROC_PER_NODE:-8}" --max-restarts "${RESTARTS:-3}" \
  --rdzv-backend c10d --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29400}" \
  "${APUS:-apus}" sft --resume_from_checkpoint auto --add_version false "$@"
