#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# disturbances_test.sh APUS FOLDER: four ranks on two machines (network namespaces of this one) whose run suffers kills, stops and cut links,
# drawn by a seed, and ends with the losses and weights of a run that nobody disturbed, to the bit.
#   APUS_DISTURBANCES       how many (3; 20 take some minutes)
#   APUS_DISTURBANCES_SEED  which (7)
# Exit code 77: skipped, where there are no network namespaces (iproute2; as root).
set -euo pipefail
apus=$1 work=$2 count=${APUS_DISTURBANCES:-3} seed=${APUS_DISTURBANCES_SEED:-7}
fail() { echo "FAILED: $*" >&2; tail -n 25 "$work"/out.?.log >&2 2>/dev/null || true; exit 1; }
skip() { echo "SKIPPED: $*"; exit 77; }
command -v ip >/dev/null || skip "there is no ip (iproute2)"
spaces=(apus-$$-0 apus-$$-1)
clean() {
  for pid in "${launchers[@]}"; do kill -9 "$pid" 2>/dev/null || true; done  # their ranks go with them
  for space in "${spaces[@]}"; do ip netns delete "$space" 2>/dev/null || true; done
}
launchers=()
trap clean EXIT
{ ip netns add "${spaces[0]}" && ip netns add "${spaces[1]}" && ip link add v0 netns "${spaces[0]}" type veth peer name v1 netns "${spaces[1]}"; } \
  >/dev/null 2>&1 || skip "no network namespaces can be made here"
for i in 0 1; do
  ip -n "${spaces[i]}" address add 10.87.0.$((i + 1))/24 dev v$i
  ip -n "${spaces[i]}" link set lo up && ip -n "${spaces[i]}" link set v$i up
done
rm -rf "$work" && mkdir -p "$work" && cd "$work"
"$apus" init --preset tiny --output_dir model --torch_dtype float32 --seed 3 2>/dev/null
for i in $(seq 40); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"it is $i\"}]}" >>rows.jsonl
done
steps=$((count * 25))
node() {  # node RANK OUT FLAGS...: becomes the launcher
  local rank=$1 out=$2
  shift 2
  exec ip netns exec "${spaces[rank]}" env NNODES=2 NODE_RANK="$rank" NPROC_PER_NODE=2 MASTER_ADDR=10.87.0.1 MASTER_PORT=29544 OMP_NUM_THREADS=1 \
    "$apus" sft --model model --dataset rows.jsonl --device cpu --torch_dtype float32 --deepspeed zero2 --output_dir "$out" \
    --add_version false --max_steps $steps --save_steps 5 --save_total_limit 2 --learning_rate 1e-4 --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 --logging_steps 1 --report_to none --ddp_timeout 5 "$@" >"$out.$rank.log" 2>&1
}
start() {  # start OUT FLAGS...
  launchers=()
  for rank in 0 1; do node $rank "$@" & launchers+=($!); done
}
ends_well() { for pid in "${launchers[@]}"; do wait "$pid" || fail "$1 ends with exit code $?"; done; launchers=(); }
newest() { find "$1" -maxdepth 1 -name 'checkpoint-*' 2>/dev/null | sed 's/.*-//' | sort -n | tail -1 || true; }
step() { tail -n 1 out/logging.jsonl | sed -n 's/.*"global_step.max_steps":"\([0-9]*\).*/\1/p' | grep . || echo 0; }
draw() { drawn=$((RANDOM / 16 % $1)); }  # below so many
link() { ip -n "${spaces[0]}" link set v0 "$1"; }
disturb() {
  local kind=$(($1 % 3)) short rank victim
  draw 2 && short=$drawn && draw 4 && rank=$drawn
  victim=$(pgrep -P "${launchers[rank / 2]}" | sed -n "$((rank % 2 + 1))p") || true
  [ $kind = 2 ] || [ -n "$victim" ] || return 1  # its machine is between two attempts
  case $kind$short in
  0*) what="kill of rank $rank" && kill -9 "$victim" || return 1 ;;
  10) what="stop of rank $rank" && kill -STOP "$victim" || return 1 ;;
  11) what="stop of rank $rank for a moment" && kill -STOP "$victim" && sleep 1 && kill -CONT "$victim" || return 1 ;;
  20) what="cut for long" && link down && sleep 8 && link up ;;
  21) what="cut for a moment" && link down && sleep 1 && link up ;;
  esac
}

start whole
ends_well whole
RANDOM=$seed
start out --max_restarts 100
for i in $(seq "$count"); do
  had=$(newest out)
  until [ "$(newest out)" != "$had" ] && [ -n "$(newest out)" ]; do
    kill -0 "${launchers[@]}" 2>/dev/null || fail "the run ended before disturbance $i"
    sleep 0.05
  done
  draw 5 && wanted=$(($(newest out) + drawn))
  until [ "$(step)" -ge $wanted ]; do sleep 0.02; done
  until disturb "$i"; do sleep 0.2; done
  echo "$i: $what, behind checkpoint-$(newest out)"
done
ends_well out
echo "started again $(grep -c 'the run is started again' out.0.log) and $(grep -c 'the run is started again' out.1.log) times"
python3 - $steps <<'P'
import json, sys
runs = [[json.loads(line) for line in open(d + "/logging.jsonl")][:-1] for d in ("whole", "out")]
losses = [[(row["global_step/max_steps"], row["loss"], row["grad_norm"]) for row in run] for run in runs]
assert len(losses[0]) == int(sys.argv[1]), len(losses[0])
for a, b in zip(*losses): assert a == b, (a, b)
assert len(losses[0]) == len(losses[1]), [len(run) for run in losses]
P
cmp whole/checkpoint-$steps/adapter_model.safetensors out/checkpoint-$steps/adapter_model.safetensors || fail "other weights"
! ls -d out/.checkpoint-* 2>/dev/null || fail "something half-written stays"
