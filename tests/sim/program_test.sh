#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program on the simulated NPU as a user runs it: program_test.sh APUS SIM_FOLDER WORK_FOLDER CASE
set -euo pipefail
apus=$1 sim=$2 work=$3 case=$4
rm -rf "$work" && mkdir -p "$work"
self_built="$sim/lib"                 # libascendcl and a libtorch_npu that starts without Python
runtime_only="$work/runtime"          # libascendcl alone
mkdir -p "$runtime_only" && ln -s "$self_built/libascendcl.so" "$runtime_only/"
fail() { echo "FAILED: $*" >&2; exit 1; }
says() { grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "the text above does not say: $2"; }; }
exits() {  # exits CODE COMMAND...: stdout and stderr go to $work/said
  local want=$1 code=0; shift
  "$@" >"$work/said" 2>&1 || code=$?
  [ "$code" = "$want" ] || { cat "$work/said" >&2; fail "exit code $code, not $want: $*"; }
}
model() { "$apus" init --preset tiny --output_dir "$work/model" --torch_dtype "$1" --seed 3 2>/dev/null; }
rows() {
  for i in 1 2 3; do echo '{"messages":[{"role":"user","content":"question '$i'"},{"role":"assistant","content":"an answer, '$i'"}]}'; done >"$work/rows.jsonl"
}
infer() { "$apus" infer --model "$work/model" --device "$1" --val_dataset "$work/rows.jsonl" --result_path "$work/$2.jsonl" --max_new_tokens 4 --temperature 0 2>"$work/said"; }

export APUS_SIM_MEMORY=${APUS_SIM_MEMORY:-1000000000}  # the cache takes what is free, and this is the host's memory
case $case in
infer)  # the same tokens as on the processor
  model float32 && rows
  infer cpu cpu
  LD_LIBRARY_PATH=$self_built infer npu npu && says "$work/said" "float32 on npu:0"
  cmp "$work/cpu.jsonl" "$work/npu.jsonl" || fail "other tokens on the NPU"
  LD_LIBRARY_PATH=$self_built ASCEND_RT_VISIBLE_DEVICES=2,6 infer npu:1 one && says "$work/said" "on npu:1"
  LD_LIBRARY_PATH=$self_built ASCEND_RT_VISIBLE_DEVICES=2,6 exits 2 "$apus" infer --model "$work/model" --device npu:2 --val_dataset "$work/rows.jsonl"
  says "$work/said" "has 2 visible (ASCEND_RT_VISIBLE_DEVICES selects them)"
  ;;
sft)  # the same losses as on the processor
  model float32 && rows
  for device in cpu npu; do
    LD_LIBRARY_PATH=$self_built "$apus" sft --model "$work/model" --device $device --dataset "$work/rows.jsonl" --output_dir "$work/$device" --max_steps 2 \
      --gradient_accumulation_steps 1 --per_device_train_batch_size 3 --tuner_type full --torch_dtype float32 --learning_rate 1e-3 --logging_steps 1 \
      --add_version false --save_strategy no --split_dataset_ratio 0 2>"$work/said" || { cat "$work/said" >&2; fail "sft on $device"; }
  done
  python3 - "$work" <<'P'
import json, sys
runs = [[json.loads(line) for line in open("%s/%s/logging.jsonl" % (sys.argv[1], d)) if "loss" in line] for d in ("cpu", "npu")]
losses = [[row["loss"] for row in run if "loss" in row] for run in runs]
assert len(losses[0]) == len(losses[1]) >= 2, losses
assert all(abs(a - b) < 1e-4 for a, b in zip(*losses)), losses
P
  ;;
memory)  # a device that is too small: what to do, and exit code 5
  model float32 && rows
  export LD_LIBRARY_PATH=$self_built
  APUS_SIM_MEMORY=8000000 exits 5 "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl" --result_path "$work/x.jsonl"
  says "$work/said" "out of memory on npu"
  APUS_SIM_MEMORY=30000000 exits 5 "$apus" sft --model "$work/model" --device npu --dataset "$work/rows.jsonl" --output_dir "$work/out" --max_steps 1 \
    --tuner_type full --torch_dtype float32 --split_dataset_ratio 0
  says "$work/said" "out of memory on npu"
  says "$work/said" "--per_device_train_batch_size"
  ;;
doors)  # both builds of torch_npu, and why neither
  LD_LIBRARY_PATH=$self_built exits 0 "$apus" --version
  says "$work/said" "8 x Ascend910B3; torch_npu at $self_built/libtorch_npu.so"
  model float32 && rows
  LD_LIBRARY_PATH=$runtime_only PYTHONPATH=$sim/pip infer npu pip || { cat "$work/said" >&2; fail "torch_npu in Python"; }
  LD_LIBRARY_PATH=$runtime_only:$sim/pip/torch_npu/lib PYTHONPATH=$sim/pip infer npu pip2 || { cat "$work/said" >&2; fail "pip's library outside Python"; }
  LD_LIBRARY_PATH=$runtime_only exits 5 "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl"
  says "$work/said" "CANN and 8 devices are here, torch_npu is not."
  says "$work/said" "has no torch_npu (pip install torch_npu"
  exits 5 env -u LD_LIBRARY_PATH "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl"
  says "$work/said" "no CANN here"
  ;;
*) fail "no case $case" ;;
esac
