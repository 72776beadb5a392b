#!/usr/bin/env bash
# train_bench and its PyTorch peer in turn, side by side: tokens/s and peak resident memory.
# Usage: compare.sh MODEL_DIR [LENGTH...]     MODEL_DIR: apus init --preset qwen2.5-0.5b; lengths 512 and 2048 otherwise
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$1
shift
bench=${TRAIN_BENCH:-$here/../../build/bench/train/train_bench}
[ $# -gt 0 ] || set -- 512 2048
field() { grep -o "\"$1\": *[0-9.]*" | head -n 1 | sed 's/.*: *//'; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

printf '%-6s %6s  %10s %10s %7s   %8s %8s %7s\n' tuner length apus peer ratio 'apus GiB' 'peer GiB' ratio
for tuner in lora full; do
  options=()
  [ $tuner = lora ] || options=(--optim adamw_8bit --master stochastic)
  for length in "$@"; do
    recompute=false
    [ $tuner = lora ] || [ "$length" -le 512 ] || recompute=true
    ours=$("$bench" "$model" $tuner "$length" --steps 3 "${options[@]}")
    peer=$(python3 "$here/peer.py" $tuner "$length" --steps 2 --recompute $recompute --threads "$OMP_NUM_THREADS")
    awk -v t=$tuner -v l="$length" -v a="$(field tokens_per_s <<<"$ours")" -v b="$(field tokens_per_s <<<"$peer")" \
      -v c="$(field peak_gib <<<"$ours")" -v d="$(field peak_gib <<<"$peer")" \
      'BEGIN { printf "%-6s %6d  %10.1f %10.1f %7.2f   %8.2f %8.2f %7.2f\n", t, l, a, b, a / b, c, d, c / d }'
  done
done
