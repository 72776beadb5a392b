#!/usr/bin/env bash
# Vectors that stand for texts (InfoNCE): each query finds its document among all of the batch, and a wrong one that looks
# like it. Without ROWS the texts are digits, alike when they are the same in another order; the evaluation says how often
# the right one of 200 comes first (eval_recall@1). Then the vectors of a file.
. "$(dirname "$0")/common.sh"
ROWS=${ROWS:-$OUT/rows.jsonl}
HELD=${HELD:-$OUT/held.jsonl}
if [ ! -f "$ROWS" ]; then
  python3 "$here/digits.py" vectors 12000 1 > "$ROWS"
  python3 "$here/digits.py" vectors 200 2 > "$HELD"
fi
[ ${#small[@]} -eq 0 ] || small=(--max_steps 100 --save_steps 100 --eval_steps 50 --logging_steps 50 --warmup_ratio 0.05)

"$APUS" sft --task_type embedding --loss_type infonce --infonce_temperature 0.05 --model "$MODEL" --dataset "$ROWS" \
  --val_dataset "$HELD" --output_dir "$OUT/embedding" --tuner_type full --learning_rate 1e-3 \
  --per_device_train_batch_size 64 --per_device_eval_batch_size 64 --gradient_accumulation_steps 1 "${small[@]}" "$@"
"$APUS" infer --model "$(newest "$OUT/embedding")" --val_dataset "$HELD" --result_path "$OUT/vectors.jsonl" --resume false
