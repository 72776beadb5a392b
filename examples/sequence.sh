#!/usr/bin/env bash
# Rows that are too long for one device: RANKS processes share out the tokens of each, and with zero3 the weights too.
. "$(dirname "$0")/common.sh"

export NPROC_PER_NODE=${RANKS:-2}
"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT" --torch_dtype float32 \
  --sequence_parallel_size "$NPROC_PER_NODE" --deepspeed zero3 --packing true --max_length 2048 \
  --gradient_accumulation_steps 4 --learning_rate 1e-4 "${small[@]}" "$@"
