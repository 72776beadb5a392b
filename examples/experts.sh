#!/usr/bin/env bash
# A mixture of experts over several processes: its experts, its matrices, or both shared out; the losses are those of one
# process. RANKS=8 for eight. Without MODEL it is a small one with random weights.
. "$(dirname "$0")/common.sh"

if [ "$MODEL" = "$OUT/model" ]; then
  MODEL=$OUT/mixture
  [ -f "$MODEL/model.safetensors" ] ||
    "$APUS" init --preset tiny-moe --output_dir "$MODEL" --torch_dtype float32 --exist_ok true
fi
ranks=${RANKS:-2}
train() {  # train PROCESSES FOLDER FLAGS...
  NPROC_PER_NODE=$1 "$APUS" sft --model "$MODEL" --dataset "$DATA" --output_dir "$OUT/$2" \
    --torch_dtype float32 --router_aux_loss_coef 1e-3 --learning_rate 1e-4 --max_length 512 "${small[@]}" "${@:3}"
}
train "$ranks" experts --tuner_type lora --lora_dropout 0 --expert_model_parallel_size "$ranks" --deepspeed zero1 "$@"
train $((2 * ranks)) both --tuner_type full --expert_model_parallel_size "$ranks" --tensor_model_parallel_size 2 \
  --deepspeed zero1 "$@"
