#!/usr/bin/env bash
# Documents rated for a query, by a head of one number. Without ROWS the texts are digits: a document answers when it has
# the query's. The evaluation says how high the right one of four comes (eval_mrr).
. "$(dirname "$0")/common.sh"
ROWS=${ROWS:-$OUT/rows.jsonl}
HELD=${HELD:-$OUT/held.jsonl}
if [ ! -f "$ROWS" ]; then
  python3 "$here/digits.py" ranks 6000 1 > "$ROWS"
  python3 "$here/digits.py" ranks 100 2 > "$HELD"
fi
[ ${#small[@]} -eq 0 ] || small=(--max_steps 100 --save_steps 100 --eval_steps 50 --logging_steps 50 --warmup_ratio 0.05)

"$APUS" sft --task_type reranker --loss_type listwise_reranker --model "$MODEL" --dataset "$ROWS" --val_dataset "$HELD" \
  --output_dir "$OUT/reranker" --tuner_type full --learning_rate 1e-3 --per_device_train_batch_size 16 \
  --per_device_eval_batch_size 16 --gradient_accumulation_steps 1 "${small[@]}" "$@"
"$APUS" infer --model "$(newest "$OUT/reranker")" --val_dataset "$HELD" --result_path "$OUT/scores.jsonl" --resume false
