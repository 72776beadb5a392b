#!/usr/bin/env bash
# Open MPI starts the ranks: HOSTS=node1:8,node2:8 examples/cluster/mpirun.sh --model DIR --dataset rows.jsonl --output_dir OUT ...
# The program is not linked with MPI: mpirun's variables tell each process its number, and MASTER_ADDR where they meet.
set -euo pipefail
HOSTS=${HOSTS:-localhost:2}
first=${HOSTS%%[:,]*}
exec mpirun --host "$HOSTS" -x MASTER_ADDR="${MASTER_ADDR:-$first}" -x MASTER_PORT="${MASTER_PORT:-29500}" \
  "${APUS:-apus}" sft "$@"
