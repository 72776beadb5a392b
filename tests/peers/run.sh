#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh APUS SCRIPT FOLDER: one comparison with the programs of $APUS_PEERS (scripts/peers makes it). Exit code 77: skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
apus=$1 script=$2 folder=$3
skip() { echo "SKIPPED: $*"; exit 77; }
[ -n "${APUS_PEERS:-}" ] || skip "APUS_PEERS names no environment of peers (scripts/peers DIR makes one)"
[ -x "$APUS_PEERS/bin/python" ] || skip "no $APUS_PEERS/bin/python (scripts/peers $APUS_PEERS makes it)"
[ -d "${APUS_GOLDEN:-}/text/tokenizers" ] || skip "APUS_GOLDEN names no golden data: its tokenizers and checkpoints are compared"
mkdir -p "$folder"
# Nothing is downloaded, and no GPU of the machine takes part.
export HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES='' PYTHONWARNINGS=ignore TOKENIZERS_PARALLELISM=false
exec "$APUS_PEERS/bin/python" "$here/$script.py" "$apus" "$APUS_GOLDEN" "$folder"
