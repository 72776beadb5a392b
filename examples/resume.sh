#!/usr/bin/env bash
# A run that is killed, gone on with from its last checkpoint: on the CPU the result is the same to the last bit as that
# of a run that was never interrupted.
. "$(dirname "$0")/common.sh"
train=("$APUS" sft --model "$MODEL" --dataset "$DATA" --tuner_type lora --max_steps 24 --save_steps 4 --logging_steps 8
  --per_device_train_batch_size 2 --gradient_accumulation_steps 1 --add_version false "$@")
rm -rf "$OUT/whole" "$OUT/killed" "$OUT/resumed"

"${train[@]}" --output_dir "$OUT/whole"

"${train[@]}" --output_dir "$OUT/killed" &
run=$!
until [ -d "$OUT/killed/checkpoint-4" ]; do sleep 0.05; done
kill -9 "$run" 2>/dev/null || true
wait "$run" || true

last=$(ls -d "$OUT"/killed/checkpoint-* | grep -v -- '-24$' | sort -V | tail -n 1)
echo "killed; going on from $last"
"${train[@]}" --output_dir "$OUT/resumed" --resume_from_checkpoint "$last"

cmp "$OUT/whole/checkpoint-24/adapter_model.safetensors" "$OUT/resumed/checkpoint-24/adapter_model.safetensors"
echo "the interrupted and the uninterrupted run gave the same adapter, bit by bit"
