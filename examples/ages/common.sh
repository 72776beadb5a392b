# Sourced by learn.sh and grpo.sh: program, folder and model that they work with, how rows are asked, and how many answers are right.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
APUS=${APUS:-build/apus}
[ -x "$APUS" ] || APUS=apus
rows=examples/ages
reward="external:./$rows/reward.py"  # 1: right; 0.5: right, and more is said; 0.1: other JSON
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }
run() {  # shows the command, then runs it
  printf '\n$ apus %s\n' "$*"
  "$APUS" "$@"
}
ask() {  # ask NAME --model DIR | --adapters DIR: about the sentences that no training has seen
  local name=$1
  shift
  run infer "$@" --val_dataset $rows/heldout.jsonl --temperature 0 --max_new_tokens 48 --metric "$reward" --result_path "$out/$name.jsonl" \
    --resume false
}
right() {  # how many of its answers are the wanted object, however it is set
  python3 - "$out/$1.jsonl" <<'PY'
import json, sys

def read(text):
    try:
        return json.loads(text)
    except ValueError:
        return None

print(sum(read(row["response"]) == json.loads(row["labels"]) for row in map(json.loads, open(sys.argv[1]))))
PY
}

say "The model"
if [ -z "${MODEL:-}" ]; then
  scripts/real-model "$out"
  MODEL=$out/SmolLM2-135M-Instruct.gguf
fi
