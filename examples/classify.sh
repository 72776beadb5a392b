#!/usr/bin/env bash
# A classifier of texts. Without ROWS the texts are digits, and the label is the largest of them. What is saved is a
# checkpoint of HuggingFace's kind; infer writes label, logits and probabilities of each row, and says how many are right.
. "$(dirname "$0")/common.sh"
ROWS=${ROWS:-$OUT/rows.jsonl}
HELD=${HELD:-$OUT/held.jsonl}
if [ ! -f "$ROWS" ]; then
  python3 "$here/digits.py" labels 8000 1 > "$ROWS"
  python3 "$here/digits.py" labels 200 2 > "$HELD"
fi
[ ${#small[@]} -eq 0 ] || small=(--max_steps 100 --save_steps 100 --eval_steps 50 --logging_steps 50 --warmup_ratio 0.05)

"$APUS" sft --task_type seq_cls --num_labels "${LABELS:-10}" --model "$MODEL" --dataset "$ROWS" --val_dataset "$HELD" \
  --output_dir "$OUT/labels" --tuner_type full --learning_rate 1e-3 --per_device_train_batch_size 32 \
  --per_device_eval_batch_size 32 --gradient_accumulation_steps 1 "${small[@]}" "$@"
"$APUS" infer --model "$(newest "$OUT/labels")" --val_dataset "$HELD" --result_path "$OUT/labels.jsonl" --resume false \
  --metric acc
