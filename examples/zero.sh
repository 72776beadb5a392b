#!/usr/bin/env bash
# Several processes share out the optimizer's state, gradients and weights instead of each holding all of them: the same
# training in less memory. RANKS=8 for eight; on machines with accelerators each process takes one.
. "$(dirname "$0")/common.sh"

export NPROC_PER_NODE=${RANKS:-2}
train() {  # train STRATEGY FOLDER FLAGS...
  "$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/$2" --tuner_type full \
    --torch_dtype float32 --deepspeed "$1" --gradient_accumulation_steps 4 --learning_rate 1e-4 --max_length 512 \
    "${small[@]}" "${@:3}"
}
for strategy in zero1 zero2 zero3; do train "$strategy" "$strategy" "$@"; done

# The checkpoint of any of them goes on with another number of processes, and by another strategy, when an update takes as
# many rows as before.
last=$(newest "$OUT/zero3")
step=${last##*-}
NPROC_PER_NODE=1 train zero0 alone --resume_from_checkpoint "$last" --gradient_accumulation_steps $((4 * NPROC_PER_NODE)) \
  "$@" --max_steps $((step + 2))
