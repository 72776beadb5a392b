#!/usr/bin/env bash
# train_bench and its PyTorch peer in turn, side by side: tokens/s and peak resident memory.
# Usage: compare.sh MODEL_DIR [LENGTH...]     MODEL_DIR: apus init --preset qwen2.5-0.5b; lengths 512 and 2048 otherwise
# PEER=eager or compiled: transformers and PEFT (of APUS_PEERS, which scripts/peers makes) instead of peer.py.
# TUNERS="lora full", ROUNDS=2: pairs of runs, of which the best of either side counts (other work on the machine).
# Up to 512 tokens the peer does not recompute, beyond it recomputes every layer (it has no other way). Apus keeps what half of
# the peer's memory has room for: all of it for LoRA at 512, the results of products otherwise, but for those of RECOMPUTED
# feed-forwards (5; all 24 where all weights are trained with 512).
# All weights: Apus updates in the backward pass and so does not clip (IN_BACKWARD=false: afterwards, clipped); the peer clips.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$1
shift
bench=${TRAIN_BENCH:-$here/../../build/bench/train/train_bench}
[ $# -gt 0 ] || set -- 512 2048
field() { grep -o "\"$1\": *[0-9.]*" | head -n 1 | sed 's/.*: *//'; }
best() { sort -n | tail -n 1; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}
peer_python=${PEER_PYTHON:-/usr/bin/python3} peer_script=$here/peer.py peer_options=()
case ${PEER:-} in
  '') ;;
  eager) peer_script=$here/peer_transformers.py ;;
  compiled) peer_script=$here/peer_transformers.py peer_options=(--compiled true) ;;
  *) echo "PEER=$PEER is not known: eager or compiled" >&2; exit 2 ;;
esac
if [ -n "${PEER:-}" ]; then peer_python=${APUS_PEERS:?scripts/peers DIR makes the environment of peers}/bin/python; fi

printf '%-6s %6s  %10s %10s %7s   %8s %8s %7s\n' tuner length apus peer ratio 'apus GiB' 'peer GiB' ratio
for tuner in ${TUNERS:-lora full}; do
  options=()
  [ $tuner = lora ] || options=(--optim adamw_8bit --master stochastic --in_backward "${IN_BACKWARD:-true}")
  for length in "$@"; do
    recompute=false again=24
    [ "$length" -le 512 ] || recompute=true again=5
    ours_recompute=selective,${RECOMPUTED:-$again}
    [ $tuner != lora ] || [ "$length" -gt 512 ] || ours_recompute=false
    our_rates='' peer_rates=''
    for _ in $(seq "${ROUNDS:-2}"); do
      ours=$("$bench" "$model" $tuner "$length" --steps 3 --recompute "$ours_recompute" "${options[@]}")
      peer=$("$peer_python" "$peer_script" $tuner "$length" --steps 2 --recompute $recompute --threads "$OMP_NUM_THREADS" "${peer_options[@]}")
      our_rates+=$(field tokens_per_s <<<"$ours")$'\n' peer_rates+=$(field tokens_per_s <<<"$peer")$'\n'
      uptime | sed "s/.*load average: \([^,]*\).*/# load \1, apus $(field tokens_per_s <<<"$ours"), peer $(field tokens_per_s <<<"$peer")/" >&2
    done
    awk -v t=$tuner -v l="$length" -v a="$(best <<<"$our_rates")" -v b="$(best <<<"$peer_rates")" \
      -v c="$(field peak_gib <<<"$ours")" -v d="$(field peak_gib <<<"$peer")" \
      'BEGIN { printf "%-6s %6d  %10.1f %10.1f %7.2f   %8.2f %8.2f %7.2f\n", t, l, a, b, a / b, c, d, c / d }'
  done
done
