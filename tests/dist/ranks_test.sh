#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program as several processes, as a user runs it: ranks_test.sh APUS SIM_FOLDER WORK_FOLDER CASE
set -euo pipefail
apus=$1 sim=$2 work=$3 case=$4
rm -rf "$work" && mkdir -p "$work" && cd "$work"
fail() { echo "FAILED: $*" >&2; exit 1; }
says() { grep -qE -- "$2" "$1" || { cat "$1" >&2; fail "the text above does not say: $2"; }; }
"$apus" init --preset tiny --output_dir model --torch_dtype float32 --seed 3 2>/dev/null
for i in $(seq 1 25); do
  printf '{"messages":[{"role":"user","content":"question %d"},{"role":"assistant","content":"an answer, %d%*s"}]}\n' "$i" "$i" $((i % 7)) .
done >rows.jsonl
train() {  # train RANKS DEVICE OUT FLAGS...: six micro-batches an update over all ranks
  local ranks=$1 device=$2 out=$3
  shift 3
  NPROC_PER_NODE=$ranks "$apus" sft --model model --dataset rows.jsonl --device "$device" --output_dir "$out" --add_version false --learning_rate 1e-3 \
    --gradient_accumulation_steps $((6 / ranks)) --torch_dtype float32 --logging_steps 1 --split_dataset_ratio 0.1 "$@" >"$out.log" 2>&1
}
alike() {  # alike OUT OTHER: losses and evaluations of two runs
  python3 - "$1" "$2" <<'P'
import json, sys
runs = [[json.loads(line) for line in open(d + "/logging.jsonl")][:-1] for d in sys.argv[1:]]
values = [[row.get("loss", row.get("eval_loss")) for row in run] for run in runs]
assert len(values[0]) == len(values[1]) >= 4, values
assert all(abs(a - b) < 2e-5 for a, b in zip(*values)), values
P
}
training() { until grep -qs "'loss'" "$1"; do kill -0 "$2" 2>/dev/null || { cat "$1" >&2; fail "it ended"; }; sleep 0.1; done; }

case $case in
same)  # one, two and three processes; LoRA with dropout, an epoch whose end is uneven; and a resumed run
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  for ranks in 2 3; do
    train $ranks cpu many$ranks --num_train_epochs 1 --save_steps 2 || { cat many$ranks.log >&2; fail "$ranks ranks"; }
    alike one many$ranks || fail "$ranks ranks differ from one"
  done
  says many2.log "rank 0 of 2 on cpu"
  train 2 cpu again --num_train_epochs 1 --save_steps 2 --resume_from_checkpoint many2/checkpoint-2 || { cat again.log >&2; fail "resume"; }
  cmp many2/checkpoint-4/adapter_model.safetensors again/checkpoint-4/adapter_model.safetensors || fail "a resumed run differs"
  ;;
npu)  # the same over the simulated NPU's library
  train 2 cpu cpu --max_steps 4 --lora_dropout 0
  LD_LIBRARY_PATH=$sim/lib train 2 npu npu --max_steps 4 --lora_dropout 0 || { cat npu.log >&2; fail "npu"; }
  says npu.log "rank 0 of 2 on npu:0"
  alike cpu npu || fail "other losses on the NPU"
  ;;
kill)  # one rank is killed: told by name, nobody stays
  train 2 cpu out --max_steps 100000 --save_strategy no &
  shell=$!
  training out.log $shell
  launcher=$(pgrep -P $shell -f "apus sft") victim=$(pgrep -P "$launcher" | tail -1) other=$(pgrep -P "$launcher" | head -1)
  kill -9 "$victim"
  code=0; wait $shell || code=$?
  [ $code = 137 ] || fail "exit code $code"
  says out.log "rank 1 was ended by signal 9"
  if kill -0 "$other" 2>/dev/null; then fail "rank 0 is left behind"; fi
  ;;
stop)  # Ctrl-C: all ranks stop together, with a checkpoint
  train 2 cpu out --max_steps 100000 --save_strategy no &
  shell=$!
  training out.log $shell
  kill -TERM "$(pgrep -P $shell -f 'apus sft')"
  code=0; wait $shell || code=$?
  [ $code = 143 ] || fail "exit code $code"
  says out.log "Saving model checkpoint"
  ;;
*) fail "no case $case" ;;
esac
