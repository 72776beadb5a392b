#!/usr/bin/env bash
# A model whose layers are too many for one device: RANKS processes run some of them each, one behind the other. Each holds
# its own layers alone; the micro-batches of an update keep all of them busy, so there should be several times as many.
. "$(dirname "$0")/common.sh"

export NPROC_PER_NODE=${RANKS:-2}
"$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT" --torch_dtype float32 \
  --pipeline_model_parallel_size "$NPROC_PER_NODE" --tuner_type full --gradient_accumulation_steps 8 \
  --learning_rate 1e-4 --max_length 512 "${small[@]}" "$@"
