#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# turns_test.sh APUS FOLDER: answers in several turns and of mixtures through the program, on tiny models: an agent with a sub-agent and a history that
# it rewrites, an environment that shows pictures, experts met again by way of a server.
set -euo pipefail
apus=$1 work=$2
data=$(cd "$(dirname "$0")/../data" && pwd)
. "$data/../tiny_models.sh"
rm -rf "$work" && mkdir -p "$work" && cd "$work"
export OMP_NUM_THREADS=1
server=
trap '[ -z "$server" ] || kill "$server" 2> kill.log || true' EXIT
make_tiny_models "$apus" float32
make_seeing_models "$apus" "$data"
for i in 1 2 3 4 5 6 7 8; do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"question $i\"}], \"solution\": \"$i\"}"; done > rows.jsonl
head -4 seen.jsonl | tail -3 > pictures.jsonl

fail() { echo "$1" >&2; tail -20 "$2" >&2; exit 1; }
# learns NAME MODEL ROWS FLAGS...: two updates of four answers each, in float32; what it wrote is in NAME.log and NAME/logging.jsonl.
learns() {
  local name=$1 model=$2 rows=$3
  shift 3
  "$apus" rlhf --rlhf_type grpo --model "$model" --dataset "$rows" --output_dir "$name" --add_version false --torch_dtype float32 --max_steps 2 --num_generations 4 \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --max_completion_length 6 --temperature 1 --logging_steps 1 --save_strategy no --split_dataset_ratio 0 \
    --gradient_checkpointing false "$@" > "$name.log" 2>&1 || fail "$name failed" "$name.log"
}
# taught MODEL ROWS: as MODEL.taught, which has learnt to end its turns.
taught() {
  "$apus" sft --tuner_type full --model "$1" --dataset "$2" --output_dir "$1.sft" --add_version false --torch_dtype float32 --max_steps 60 --learning_rate 3e-3 --warmup_ratio 0 \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --split_dataset_ratio 0 --gradient_checkpointing false --save_only_model true > "$1.sft.log" 2>&1 \
    || fail "teaching $1 failed" "$1.sft.log"
  mv "$1.sft/checkpoint-60" "$1.taught"
}
# number NAME KEY: of the last line of its log that has one.
number() { python3 - "$1" "$2" <<'P'
import json, sys
print([line[sys.argv[2]] for line in map(json.loads, open(sys.argv[1] + "/logging.jsonl")) if sys.argv[2] in line][-1])
P
}
holds() { python3 -c "import sys; sys.exit(not ($1))" || { echo "not so: $1 ($2)" >&2; exit 1; }; }

python3 - <<'P'
import json
ends = lambda row, i: {**row, "messages": [row["messages"][0], {"role": "assistant", "content": "yes" if i % 2 else "no"}]}
for name in ("rows", "pictures"):
    rows = [json.loads(line) for line in open(name + ".jsonl")]
    open(name + ".ends.jsonl", "w").write("".join(json.dumps(ends(row, i)) + "\n" for i in range(8) for row in rows))
P
cat > agent.py <<'P'
import json, os, sys, urllib.request
row = json.load(sys.stdin)
def ask(messages):
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
def user(text): return {"role": "user", "content": text}
ask([user("plan " + row["solution"])])
helper = ask([user("help with " + row["solution"])])     # a sub-agent
last = ask([user("in short: " + str(len(helper["content"])))])  # a history written anew
print(len(last["content"] or "") % 7 / 7)
P
taught words rows.ends.jsonl
learns agent words.taught rows.jsonl --environment "agent:python3 agent.py" --max_turns 4 --log_completions true --beta 0
holds "$(number agent num_conversations) == 3.0 and $(number agent num_turns) == 3.0 and $(number agent rollout_mismatch/max) < 1e-4" agent
grep -q '"num_conversations":3' agent/completions.jsonl || fail "completions.jsonl says nothing of conversations" agent.log
echo "an agent of three conversations: ok"

cat > shows.py <<P
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "close": continue
    reply = {}
    if asked["op"] == "step":
        reply = {"reward": len(asked["completion"]) % 5, "done": asked["turn"] == 2}
        if not reply["done"]: reply.update(observation="Look: <image>", images=["$data/media/pictures/clear.png"])
    print(json.dumps({"id": asked["id"], **reply}), flush=True)
P
taught qwen3_vl pictures.ends.jsonl
learns pictures qwen3_vl.taught pictures.jsonl --environment "external:python3 shows.py" --max_turns 3 --beta 0
holds "$(number pictures rollout_mismatch/max) < 1e-3" pictures
holds "$(number pictures num_turns) > 1" pictures
echo "an environment that shows pictures: ok"

# A server that multiplies in another number format. Weights are large, so that routers are decided, and sixteen experts close to each other.
sed 's/"hidden_size": 64/"hidden_size": 64, "initializer_range": 0.15/; s/"num_hidden_layers": 2/"num_hidden_layers": 6/; s/"num_experts": 4/"num_experts": 16/' moe.json > many.json
"$apus" init --config many.json --tokenizer words --output_dir many > many.log 2>&1 || fail "no mixture" many.log
# answers_by NAME FLAGS...: a server of that mixture, and two rounds of its answers without and with R3.
answers_by() {
  local name=$1 mode
  shift
  "$apus" rollout --model many --torch_dtype bfloat16 --port 0 --host 127.0.0.1 "$@" > "$name.server.log" 2>&1 &
  server=$!
  for _ in $(seq 100); do grep -q "serving .* at http" "$name.server.log" && break; sleep 0.2; done
  url=$(sed -n 's/.*serving .* at \(http:[^ ]*\)\/v1.*/\1/p' "$name.server.log" | head -1)
  [ -n "$url" ] || fail "no server" "$name.server.log"
  for mode in disabled R3; do
    learns "$name-$mode" many rows.jsonl --reward_funcs length --max_completion_length 24 --num_generations 8 --per_device_train_batch_size 16 --beta 0 --learning_rate 0 \
      --router_replay_mode $mode --vllm_mode server --rollout_url "$url" --tuner_type lora
  done
  kill "$server"
  holds "$(number "$name-R3" router_replay/changed) > 0" "the server's routers choose others"
  echo "experts met again, $name: mismatch $(number "$name-disabled" rollout_mismatch/mean) to $(number "$name-R3" rollout_mismatch/mean), at most $(number "$name-disabled" rollout_mismatch/max) to $(number "$name-R3" rollout_mismatch/max), $(number "$name-R3" router_replay/changed) of the choices changed"
}
answers_by moe
holds "$(number moe-R3 rollout_mismatch/mean) < 0.8 * $(number moe-disabled rollout_mismatch/mean)" "the mismatch falls"
answers_by moe8 --quant_method bnb --quant_bits 8 --quant_compute int8
grep -q "quantised" moe8.server.log || fail "the server does not quantise what it was asked to" moe8.server.log
holds "$(number moe8-R3 rollout_mismatch/max) < 0.8 * $(number moe8-disabled rollout_mismatch/max)" "the largest mismatch falls"
code=0
"$apus" rlhf --rlhf_type grpo --model words --dataset rows.jsonl --reward_funcs length --router_replay_mode R3 --dry_run true > dense.log 2>&1 || code=$?
[ "$code" = 2 ] && grep -q "has no mixtures of experts" dense.log || fail "a dense model is not refused" dense.log
echo "a dense model is refused: ok"
