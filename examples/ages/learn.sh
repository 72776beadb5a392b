#!/usr/bin/env bash
# A real model learns a task: SmolLM2-135M-Instruct, which scripts/real-model fetches, is to give name and age in a sentence as JSON.
# It is asked about 50 sentences, taught with LoRA on 200 others, asked again, merged, written as a GGUF file of 8 bits, asked there,
# served and asked by HTTP: minutes on two cores. `examples/ages/learn.sh FOLDER`; MODEL=DIR takes another model, APUS=PROGRAM another
# program.
set -euo pipefail
out=${1:-output/real}
. "$(dirname "$0")/common.sh"

say "Before: $(head -n 1 $rows/heldout.jsonl | sed 's/.*"user", "content": "\([^"]*\)".*/\1/')"
ask before --model "$MODEL"

say "LoRA on $(wc -l <$rows/train.jsonl) rows, such as: $(head -n 1 $rows/train.jsonl)"
run sft --model "$MODEL" --dataset $rows/train.jsonl --tuner_type lora --lora_rank 8 --learning_rate 2e-4 --num_train_epochs 1 \
  --per_device_train_batch_size 16 --gradient_accumulation_steps 1 --gradient_checkpointing false --logging_steps 2 \
  --output_dir "$out/sft"
taught=$out/sft

say "After"
ask after --adapters "$taught"

say "The adapter folded into the weights, and those as a GGUF file"
run merge-lora --adapters "$taught" --output_dir "$out/merged" --exist_ok true
run export --model "$out/merged" --to_gguf q8_0 --output_dir "$out/gguf" --exist_ok true
file=$(ls "$out"/gguf/*.gguf | head -n 1)
ask gguf --model "$file"

say "Served, and asked by HTTP"
printf '\n$ apus deploy --model %s --adapters ages=%s\n' "$MODEL" "$taught"
"$APUS" deploy --model "$MODEL" --adapters "ages=$taught" --port 0 >"$out/deploy.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until url=$(sed -n 's|.* \(http://[^ ]*/v1\).*|\1|p' "$out/deploy.log" | head -n 1) && [ -n "$url" ]; do
  kill -0 $server 2>/dev/null || { cat "$out/deploy.log"; exit 1; }
  sleep 0.2
done
cat "$out/deploy.log"
question='{"model": "ages", "messages": [{"role": "user", "content": "Name and age as JSON: Lars is 77 years old and keeps bees in Tunis."}]}'
printf "\n\$ curl %s/chat/completions -H 'content-type: application/json' -d '%s'\n" "$url" "$question"
python3 - "$url/chat/completions" "$question" <<'P'
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"content-type": "application/json"})
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked).read().decode())
P
kill $server
wait $server || true
trap - EXIT

count=$(wc -l <$rows/heldout.jsonl)
printf '\n== Done in %d:%02d\n' $((SECONDS / 60)) $((SECONDS % 60))
for name in before after gguf; do printf '%-7s %s of %s right: %s\n' $name "$(right $name)" "$count" "$(head -n 1 "$out/$name.jsonl" | cut -c1-100)"; done
echo "curves: $(ls -d "$taught"/v*/images | sort -V | tail -n 1)"
