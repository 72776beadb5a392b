#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program on the simulated NPU as a user runs it: program_test.sh APUS SIM_FOLDER WORK_FOLDER CASE
set -euo pipefail
apus=$1 sim=$2 work=$3 case=$4 here=$(cd "$(dirname "$0")" && pwd)
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
infer() { "$apus" infer --model "$work/model" --device "$1" --val_dataset "$work/rows.jsonl" --result_path "$work/$2.jsonl" --max_new_tokens 4 --temperature 0 --resume false "${@:3}" 2>"$work/said"; }

export APUS_SIM_MEMORY=${APUS_SIM_MEMORY:-1000000000}  # the cache takes what is free, and this is the host's memory
case $case in
infer)  # the same tokens as on the processor
  model float32 && rows
  infer cpu cpu
  LD_LIBRARY_PATH=$self_built infer npu npu && says "$work/said" "float32 on npu:0"
  cmp "$work/cpu.jsonl" "$work/npu.jsonl" || fail "other tokens on the NPU"
  for codes in int8 fp8; do  # keys and values in eight bits
    infer cpu cpu --kv_cache_dtype $codes
    LD_LIBRARY_PATH=$self_built infer npu npu --kv_cache_dtype $codes
    cmp "$work/cpu.jsonl" "$work/npu.jsonl" || fail "other tokens on the NPU, with a cache in $codes"
  done
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
waits)  # in a step of training the host waits for the device twice (its loss, the gradients' norm), in a decoded token once
  model bfloat16 && rows
  (cd "$work" && . "$here/../tiny_models.sh" && make_tiny_models "$apus" bfloat16)
  export LD_LIBRARY_PATH=$self_built
  waited() { awk '{ sum += $2 } END { print sum + 0 }' "$work/$1"; }  # in a longer run more than in a shorter one
  head -n 1 "$work/rows.jsonl" >"$work/one.jsonl"  # several may come in one step or in two
  for steps in 4 12; do
    APUS_SIM_WAITS="$work/sft$steps" "$apus" sft --model "$work/model" --device npu --dataset "$work/rows.jsonl" --output_dir "$work/out" --max_steps $steps \
      --gradient_accumulation_steps 3 --per_device_train_batch_size 1 --add_version false --save_strategy no --logging_steps 100 \
      --split_dataset_ratio 0 2>"$work/said" || { cat "$work/said" >&2; fail "sft"; }
    APUS_SIM_WAITS="$work/infer$steps" infer npu npu --max_new_tokens $((4 * steps)) --temperature 0.7 --top_p 0.9 \
      --val_dataset "$work/one.jsonl"
    # experts that are held quantised
    APUS_SIM_WAITS="$work/experts$steps" infer npu experts --max_new_tokens $((4 * steps)) --model "$work/moe" --quant_method hqq --quant_bits 4 \
      --val_dataset "$work/one.jsonl"
  done
  more=$(($(waited sft12) - $(waited sft4)))
  [ $more = 16 ] || { cat "$work/sft12" >&2; fail "8 steps of training waited $more times, not 16"; }
  more=$(($(waited infer12) - $(waited infer4)))
  [ $more -le 32 ] || { cat "$work/infer12" >&2; fail "32 decoded tokens waited $more times"; }
  # ... and each time the device had the next step to go on with
  behind() { awk '$1 == "event_behind" { print $2 }' "$work/$1"; }
  [ $(($(behind infer12) - $(behind infer4))) = 32 ] || { cat "$work/infer12" >&2; fail "the device had nothing to do while the host waited for 32 tokens"; }
  more=$(($(waited experts12) - $(waited experts4)))
  [ $more -le 32 ] || { cat "$work/experts12" >&2; fail "32 decoded tokens of a mixture waited $more times"; }
  ;;
memory)  # a device that is too small: what to do, and exit code 5
  model float32 && rows
  export LD_LIBRARY_PATH=$self_built
  APUS_SIM_MEMORY=8000000 exits 5 "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl" --result_path "$work/x.jsonl"
  says "$work/said" "out of memory on npu"
  for limit in 30000000:--optim 46000000:--per_device_train_batch_size; do  # in the optimizer's state; in the step
    APUS_SIM_MEMORY=${limit%:*} exits 5 "$apus" sft --model "$work/model" --device npu --dataset "$work/rows.jsonl" --output_dir "$work/out" --max_steps 1 \
      --tuner_type full --torch_dtype float32 --split_dataset_ratio 0
    says "$work/said" "out of memory on npu"
    says "$work/said" "${limit#*:}"
  done
  ;;
doors)  # both builds of torch_npu, and why neither
  LD_LIBRARY_PATH=$self_built exits 0 "$apus" --version
  says "$work/said" "8 x Ascend910B3; torch_npu at $self_built/libtorch_npu.so"
  model float32 && rows
  LD_LIBRARY_PATH=$runtime_only PYTHONPATH=$sim/pip infer npu pip || { cat "$work/said" >&2; fail "torch_npu in Python"; }
  # Python shows the library's symbols to nobody, and they are found
  LOG_LEVEL=DEBUG LD_LIBRARY_PATH=$runtime_only PYTHONPATH=$sim/pip infer npu pip
  says "$work/said" "own functions: npuSynchronizeDevice, getDefaultNPUGenerator"
  LD_LIBRARY_PATH=$runtime_only:$sim/pip/torch_npu/lib PYTHONPATH=$sim/pip infer npu pip2 || { cat "$work/said" >&2; fail "pip's library outside Python"; }
  LD_LIBRARY_PATH=$runtime_only exits 5 "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl"
  says "$work/said" "CANN and 8 devices are here, torch_npu is not."
  says "$work/said" "has no torch_npu (pip install torch_npu"
  exits 5 env -u LD_LIBRARY_PATH "$apus" infer --model "$work/model" --device npu --val_dataset "$work/rows.jsonl"
  says "$work/said" "no CANN here"
  ;;
chips)  # chips without bf16 and without the fused operators: f16, and the reference
  model bfloat16 && rows
  infer cpu cpu --torch_dtype float32
  export LD_LIBRARY_PATH=$self_built
  infer npu new && says "$work/said" "bfloat16 on npu:0"
  for chip in Ascend310P3 Ascend910A; do
    export APUS_SIM_SOC=$chip
    infer npu old || { cat "$work/said" >&2; fail "$chip"; }
    says "$work/said" "bfloat16 is not computed on npu; the weights are held as float16, whose largest number is 65504"
    says "$work/said" "float16 on npu:0"
    infer npu exact --torch_dtype float32
    cmp "$work/cpu.jsonl" "$work/exact.jsonl" || fail "$chip: other tokens than on the processor"
    exits 0 "$apus" devices --ops
    tr -s ' ' <"$work/said" >"$work/ops" && says "$work/ops" "attention native reference"
  done
  ;;
selftest)  # a device held against the processor, and one that computes badly
  cd "$work"
  exits 0 "$apus" doctor --trial false --selftest true --device cpu --report cpu.json
  says said "right on cpu"
  export LD_LIBRARY_PATH=$self_built
  exits 0 "$apus" doctor --trial false --selftest true --device npu:1 --report npu.json
  says said "right on npu:1 (Ascend910B3)"
  tr -s ' \n' ' ' <said >line
  says line "the vendor's: " && says line "losses differ by at most" && says line "decoding, bfloat16 3 answers, the processor's"
  APUS_SIM_WRONG=npu_swiglu exits 5 "$apus" doctor --trial false --selftest true --device npu --report wrong.json
  tr -s ' \n' ' ' <said >line
  says line "swiglu bfloat16" && says line "APUS_REFERENCE_OPS=swiglu" && says line "FAIL training"
  python3 - <<'P'
import json
right, wrong = (json.load(open(name + ".json")) for name in ("npu", "wrong"))
assert right["device"] == "npu:1" and "CANN 8.3.RC1" in right["library"] and right["machine"] and right["failures"] == [], right
assert all(row["right"] and row["error"] <= row["limit"] for row in right["operators"])
assert {row["op"] for row in wrong["operators"] if not row["right"]} >= {"swiglu"}
assert right["losses"]["device"][-1] < right["losses"]["device"][0]
P
  ;;
map)  # models that are larger than a card, over several: the processor's tokens and log-probabilities
  model float32 && rows && mv "$work/model" "$work/tied" && mkdir "$work/shape"
  python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); c["tie_word_embeddings"] = False; json.dump(c, open(sys.argv[2], "w"))' "$work/tied/config.json" "$work/shape/config.json"
  "$apus" init --config "$work/shape" --tokenizer "$work/tied" --output_dir "$work/untied" --torch_dtype float32 --seed 4 2>/dev/null
  "$apus" init --preset tiny-moe --output_dir "$work/moe" --torch_dtype float32 --seed 5 2>/dev/null
  export LD_LIBRARY_PATH=$self_built
  scores() { "$apus" score --model "$work/model" --device "$1" --dataset "$work/rows.jsonl" --result_path "$work/$2.scores" "${@:3}" >"$work/out" 2>"$work/said"; }
  for kind in tied:12000000 untied:12000000 moe:4500000; do
    ln -sfn "${kind%:*}" "$work/model" && export APUS_SIM_MEMORY=${kind#*:}
    infer cpu cpu && scores cpu cpu
    exits 5 infer npu none --max_model_len 256
    infer npu map --device_map auto --max_model_len 256
    cmp "$work/cpu.jsonl" "$work/map.jsonl" || fail "$kind: other tokens than on the processor"
    says "$work/said" "the model lies on 2 devices, with a cache for" && says "$work/said" "npu:0" && says "$work/said" "model.layers.0"
    # whole texts are scored with a mask of 4 MiB: a card with room for it, of which the model may take less than it needs
    APUS_SIM_MEMORY=20000000 scores npu map --max_memory "{0: $((APUS_SIM_MEMORY * 9 / 10)), 1: $((APUS_SIM_MEMORY * 9 / 10))}" || { cat "$work/said" >&2; fail "score of $kind"; }
    says "$work/said" "the model lies on 2 devices:"
    python3 - "$work/cpu.scores" "$work/map.scores" <<'P'
import json, sys
a, b = ([p for line in open(f) for p in json.loads(line)["logprobs"][1:]] for f in sys.argv[1:])
assert len(a) == len(b) > 20 and all(abs(x - y) < 1e-4 for x, y in zip(a, b)), (a, b)
P
  done
  # maps of the user's own, the processor among the devices
  ln -sfn tied "$work/model" && export APUS_SIM_MEMORY=12000000 && infer cpu cpu
  for map in balanced sequential balanced_low_0 '{"model.embed_tokens": 3, "model.layers": 1, "model.layers.0": 2, "model.norm": 0, "lm_head": 2}' '{"": 0, "model.layers.1": 1, "model.layers.2": "npu:4", "model.layers.3": "cpu"}' "{'': 'cpu', 'model.layers.0': 7}"; do
    infer npu map --device_map "$map" --kv_cache_gb 0.001 || { cat "$work/said" >&2; fail "$map"; }
    cmp "$work/cpu.jsonl" "$work/map.jsonl" || fail "$map: other tokens"
  done
  says "$work/said" "npu:7" && says "$work/said" "model.layers.0"
  infer npu map --device_map auto --max_memory '{5: "11MB", 6: "11MB"}' --max_model_len 256 && says "$work/said" "npu:5" && says "$work/said" "npu:6"
  cmp "$work/cpu.jsonl" "$work/map.jsonl" || fail "--max_memory: other tokens"
  # an adapter goes where its layers are
  "$apus" sft --model "$work/model" --device cpu --dataset "$work/rows.jsonl" --output_dir "$work/lora" --max_steps 2 --torch_dtype float32 --learning_rate 1e-2 \
    --add_version false --split_dataset_ratio 0 2>"$work/said" || { cat "$work/said" >&2; fail "sft"; }
  infer cpu cpu2 --adapters "$work"/lora/checkpoint-2
  infer npu map --adapters "$work"/lora/checkpoint-2 --device_map auto --max_model_len 256 || { cat "$work/said" >&2; fail "with an adapter"; }
  cmp "$work/cpu2.jsonl" "$work/map.jsonl" || fail "with an adapter: other tokens"
  ;;
map_refused)  # what does not fit, and maps that are none
  model float32 && rows
  export LD_LIBRARY_PATH=$self_built APUS_SIM_MEMORY=12000000
  refused() { local code=$1 words=$2; shift 2; exits "$code" infer npu none "$@"; says "$work/said" "$words"; }
  refused 5 "npu:1 cannot hold model.layers.0-3" --device_map '{"": 0, "model.layers": 1}'
  refused 5 "--device_map auto places it on 2 devices" --device_map 1
  refused 2 "no module 'model.layer.3'; did you mean model.layers.3?" --device_map '{"": 0, "model.layer.3": 1}'
  refused 2 "'lm_head' is on npu:8, which is not there" --device_map '{"": 0, "lm_head": 8}'
  refused 2 "--max_memory names npu:9, which is not there" --device_map auto --max_memory '{9: "1GB"}'
  APUS_SIM_DEVICES=1 refused 5 "What helps: --torch_dtype bfloat16" --device_map auto
  exits 2 "$apus" sft --model "$work/model" --dataset "$work/rows.jsonl" --device_map auto && says "$work/said" "NPROC_PER_NODE"
  exits 0 infer npu none --device_map auto --max_model_len 256 --dry_run true
  [ ! -e "$work/none.jsonl" ] || fail "--dry_run wrote answers"
  ;;
gpu)  # devices and links through the GPUs' library where nvidia-smi does not answer
  mkdir -p "$work/bin" && printf '#!/bin/sh\necho "no devices were found" >&2; exit 6\n' >"$work/bin/nvidia-smi" && chmod +x "$work/bin/nvidia-smi"
  export PATH="$work/bin:$PATH"
  LD_LIBRARY_PATH=$sim/gpu exits 0 "$apus" devices
  says "$work/said" "cuda:3" && says "$work/said" "NVIDIA H200" && says "$work/said" "1.0 / 141.0" && says "$work/said" "570.0.1"
  LD_LIBRARY_PATH=$sim/gpu exits 0 "$apus" topo
  says "$work/said" "cuda  (NVML)" && says "$work/said" "GPU0  X     NV4   SYS   SYS   0-11"
  says "$work/said" "GPU2  SYS   SYS   X     PXB   0-3,16-23"
  LD_LIBRARY_PATH=$sim/gpu exits 0 "$apus" plan --preset qwen2.5-7b --tuner_type lora --max_length 1024
  says "$work/said" "sft on 1 x NVIDIA H200 of 141.0 GiB"
  exits 0 "$apus" devices
  says "$work/said" "cuda: nvidia-smi failed (6): no devices were found"
  ;;
*) fail "no case $case" ;;
esac
