#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program as several processes, as a user runs it: ranks_test.sh APUS SIM_FOLDER WORK_FOLDER CASE
set -euo pipefail
apus=$1 sim=$2 work=$3 case=$4
data=$(cd "$(dirname "$0")/../data" && pwd)
. "$data/../tiny_models.sh"
rm -rf "$work" && mkdir -p "$work" && cd "$work"
fail() { echo "FAILED: $*" >&2; exit 1; }
says() { grep -qE -- "$2" "$1" || { cat "$1" >&2; fail "the text above does not say: $2"; }; }
"$apus" init --preset tiny --output_dir model --torch_dtype float32 --seed 3 2>/dev/null
for i in $(seq 1 25); do
  printf '{"messages":[{"role":"user","content":"question %d"},{"role":"assistant","content":"an answer, %d%*s"}]}\n' "$i" "$i" $((i % 7)) .
done >rows.jsonl
train() {  # train RANKS DEVICE OUT FLAGS...: six micro-batches an update over all ranks, of which $sharers read the same
  local ranks=$1 device=$2 out=$3
  shift 3
  NPROC_PER_NODE=$ranks "$apus" sft --model model --dataset rows.jsonl --device "$device" --output_dir "$out" --add_version false --learning_rate 1e-3 \
    --gradient_accumulation_steps $((6 * ${sharers:-1} / ranks)) --torch_dtype float32 --logging_steps 1 --split_dataset_ratio 0.1 "$@" >"$out.log" 2>&1
}
alike() {  # alike OUT OTHER [LAST [WITHIN]]: losses and evaluations of two runs, or the last so many
  python3 - "$1" "$2" "${3:-0}" "${4:-2e-5}" <<'P'
import json, sys
runs = [[json.loads(line) for line in open(d + "/logging.jsonl")][:-1] for d in sys.argv[1:3]]
last = int(sys.argv[3])
values = [[row.get("loss", row.get("eval_loss")) for row in run][-last:] for run in runs]
assert len(values[0]) == len(values[1]) >= (last or 4), values
assert all(abs(a - b) < float(sys.argv[4]) for a, b in zip(*values)), values
P
}
weights_alike() {  # weights_alike CHECKPOINT OTHER
  python3 - "$1" "$2" <<'P'
import glob, json, struct, sys
def read(path):
    data = open(glob.glob(path + "/*model.safetensors")[0], "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: struct.unpack("<%df" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 4), data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}
a, b = read(sys.argv[1]), read(sys.argv[2])
assert a.keys() == b.keys()
worst = max((max(abs(x - y) for x, y in zip(a[k], b[k])), k) for k in a)
assert worst[0] < 1e-4, worst
P
}
cat >sums.py <<'P'
import json, sys
for line in sys.stdin: print(json.dumps({"reward": sum(json.loads(line)["completion_ids"]) % 7 / 6}), flush=True)
P
rl() {  # rl RANKS OUT TYPE FLAGS...
  local ranks=$1 out=$2 type=$3
  shift 3
  NPROC_PER_NODE=$ranks "$apus" rlhf --rlhf_type "$type" --model model --device cpu --output_dir "$out" --add_version false --torch_dtype float32 \
    --max_completion_length 10 --logging_steps 1 --learning_rate ${rate:-1e-3} --ddp_timeout 60 "$@" >"$out.log" 2>&1 || { cat "$out.log" >&2; fail "$out"; }
}
numbers_alike() {  # numbers_alike OUT OTHER NAME...
  python3 - "$@" <<'P'
import json, sys
runs = [[json.loads(line) for line in open(d + "/logging.jsonl")][:-1] for d in sys.argv[1:3]]
assert len(runs[0]) == len(runs[1]) >= 3, [len(run) for run in runs]
for name in sys.argv[3:]:
    pairs = [(a[name], b[name]) for a, b in zip(*runs) if name in a or name in b]
    assert pairs and all(abs(x - y) <= 1e-5 * max(1, abs(y)) for x, y in pairs), (name, pairs)
P
}
training() { until grep -qs "'loss'" "$1"; do kill -0 "$2" 2>/dev/null || { cat "$1" >&2; fail "it ended"; }; sleep 0.1; done; }

case $case in
same)  # one, two and three processes; LoRA with dropout, an epoch whose end is uneven; and a resumed run
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  for ranks in 2 3; do
    train $ranks cpu many$ranks --num_train_epochs 1 --save_steps 2 || { cat many$ranks.log >&2; fail "$ranks ranks"; }
    alike one many$ranks || fail "$ranks ranks differ from one"
  done
  says many2.log "rank 0 of 2 on cpu"
  train 2 cpu again --num_train_epochs 1 --save_steps 2 --resume_from_checkpoint many2/checkpoint-2 || { cat again.log >&2; fail "resume"; }
  cmp many2/checkpoint-4/adapter_model.safetensors again/checkpoint-4/adapter_model.safetensors || fail "a resumed run differs"
  ;;
groups)  # the answers to a question come from several processes; replayed by one they give the same update
  cat >reward.py <<'P'
import json, sys
for line in sys.stdin: print(json.dumps({"reward": len(set(json.loads(line)["completion"])) / 10}), flush=True)
P
  NPROC_PER_NODE=3 "$apus" rlhf --rlhf_type grpo --model model --dataset rows.jsonl --device cpu --output_dir three --add_version false \
    --torch_dtype float32 --reward_funcs "external:python3 reward.py" --num_generations 6 --per_device_train_batch_size 2 --gradient_accumulation_steps 2 \
    --max_completion_length 12 --temperature 1 --max_steps 1 --logging_steps 1 --lora_dropout 0 --log_completions true --dump_rollouts "$PWD/said" \
    >three.log 2>&1 || { cat three.log >&2; fail "three processes"; }
  python3 - said three/completions.jsonl >all.jsonl <<'P'
import json, sys
rows = [json.loads(line) for rank in range(3) for line in open(f"{sys.argv[1]}.{rank}")]
assert len(rows) == 12, len(rows)
prompts = [json.loads(line)["prompt"] for line in open(sys.argv[2])]
assert len(prompts) == 12 and sorted(map(prompts.count, set(prompts))) == [6, 6], prompts
for row in rows: print(json.dumps(row))
P
  "$apus" rlhf --rlhf_type grpo --model model --replay_rollouts all.jsonl --device cpu --output_dir one --add_version false --torch_dtype float32 \
    --num_generations 6 --per_device_train_batch_size 2 --gradient_accumulation_steps 6 --temperature 1 --max_steps 1 --logging_steps 1 --lora_dropout 0 \
    >one.log 2>&1 || { cat one.log >&2; fail "replayed"; }
  python3 - three one <<'P'
import json, sys
a, b = (json.loads(open(d + "/logging.jsonl").readline()) for d in sys.argv[1:])
for key in ("loss", "grad_norm", "reward", "reward_std"):
    assert abs(a[key] - b[key]) <= 1e-5 + 1e-4 * abs(b[key]), (key, a[key], b[key])
assert a["grad_norm"] > 0, a
P
  ;;
rollouts)  # weights shared out, and answers drawn with them: those of ranks that hold all, and the losses of one process
  "$apus" init --preset tiny --output_dir teacher --torch_dtype float32 --seed 4 2>/dev/null
  head -3 rows.jsonl >few.jsonl
  # Real answers, several updates of a round, a reference, an epoch and evaluations in which one rank has fewer questions.
  drawn=(--dataset rows.jsonl --val_dataset few.jsonl --reward_funcs "external:python3 sums.py" --num_generations 4 --per_device_train_batch_size 4
    --gradient_accumulation_steps 2 --num_iterations 2 --beta 0.1 --num_train_epochs 1 --eval_steps 4)
  for tuner in full lora; do
    rl 2 whole-$tuner grpo "${drawn[@]}" --tuner_type $tuner --dump_rollouts "$PWD/whole-$tuner.said"
    rl 2 shared-$tuner grpo "${drawn[@]}" --tuner_type $tuner --dump_rollouts "$PWD/shared-$tuner.said" --deepspeed zero3
    says shared-$tuner.log "2 ranks share out weights"
    numbers_alike whole-$tuner shared-$tuner loss grad_norm reward kl eval_loss eval_reward rollout_mismatch/max
    python3 - whole-$tuner.said shared-$tuner.said <<'P'
import json, sys
for rank in range(2):
    a, b = ([json.loads(line)["completion_ids"] for line in open(f"{f}.{rank}")] for f in sys.argv[1:])
    assert a == b and len(a) > 20, "other answers were drawn"
P
  done
  # The same answers from a file, in groups that do not come out even.
  cat whole-full.said.[01] | sed -n 1,20p >replay.jsonl  # which reads to the end: nobody writes into a closed pipe
  for ranks in 1 2; do
    rl $ranks replay$ranks grpo --replay_rollouts "$PWD/replay.jsonl" --num_generations 4 --per_device_train_batch_size 2 --beta 0.1 --tuner_type full \
      --num_train_epochs 4 $([ $ranks = 1 ] || echo --deepspeed zero3)
  done
  numbers_alike replay1 replay2 loss grad_norm kl
  # The tokens that a loss treats apart are those of the whole update on all ranks.
  for loss in "clip_cov --clip_cov_low 1e-3 --cov_ratio 0.2" "kl_cov --cov_ratio 0.2" "dapo --top_entropy_quantile 0.3"; do
    rm -rf chosen1 chosen2
    for ranks in 1 2; do
      rl $ranks chosen$ranks grpo --replay_rollouts "$PWD/replay.jsonl" --num_generations 4 --per_device_train_batch_size $((6 / ranks)) --beta 0 \
        --tuner_type full --num_train_epochs 3 --loss_type $loss
    done
    numbers_alike chosen1 chosen2 loss grad_norm
  done
  # The likeliest answers are the same however many ask: a critic that is shared out too, and a teacher.
  for ranks in 1 2; do
    share=$([ $ranks = 1 ] || echo --deepspeed zero3)
    for tuner in full lora; do
      rl $ranks ppo-$tuner$ranks ppo --dataset rows.jsonl --reward_funcs "external:python3 sums.py" --top_k 1 --tuner_type $tuner --num_ppo_epochs 2 \
        --critic_warmup_rounds 1 --per_device_train_batch_size 2 --gradient_accumulation_steps $((6 / ranks)) --max_steps 6 --save_steps 6 $share
    done
    rl $ranks gkd$ranks gkd --dataset rows.jsonl --teacher_model teacher --lmbda 0.7 --top_k 1 --tuner_type full --per_device_train_batch_size 2 \
      --gradient_accumulation_steps $((6 / ranks)) --max_steps 5 $share
    NPROC_PER_NODE=$ranks "$apus" sft --model model --dataset rows.jsonl --val_dataset few.jsonl --device cpu --output_dir answers$ranks --add_version false \
      --torch_dtype float32 --max_steps 3 --eval_steps 1 --logging_steps 1 --gradient_accumulation_steps $((6 / ranks)) --predict_with_generate true \
      --max_new_tokens 8 $share >answers$ranks.log 2>&1 || { cat answers$ranks.log >&2; fail "answers$ranks"; }
  done
  for tuner in full lora; do
    numbers_alike ppo-${tuner}1 ppo-${tuner}2 loss grad_norm reward kl loss/value_avg
  done
  weights_alike ppo-full1/checkpoint-6/critic ppo-full2/checkpoint-6/critic || fail "another critic"
  numbers_alike gkd1 gkd2 loss grad_norm completions/mean_length
  numbers_alike answers1 answers2 eval_loss eval_rouge-l eval_acc
  # Two that read the same rows draw the answers of one process, each half of them, and learn from their parts.
  for ranks in 1 2; do
    rl $ranks rows$ranks grpo --dataset rows.jsonl --reward_funcs "external:python3 sums.py" --num_generations 4 --per_device_train_batch_size 4 \
      --gradient_accumulation_steps 2 --num_iterations 2 --dynamic_sample true --advantage_estimator reinforce_plus_plus --beta 0.1 --log_entropy true \
      --log_completions true --tuner_type full --max_steps 8 --dump_rollouts "$PWD/rows$ranks.said" \
      $([ $ranks = 1 ] || echo --sequence_parallel_size 2 --deepspeed zero3)
  done
  numbers_alike rows1 rows2 loss grad_norm reward reward_std kl entropy/mean rewards/sums.py/std
  python3 - rows1 rows2 <<'P'
import json, sys
for name, key in ((".said", "completion_ids"), ("/completions.jsonl", "completion")):
    a, b = ([json.loads(line)[key] for line in open(run + name)] for run in sys.argv[1:])
    assert a == b and len(a) >= 32, (name, len(a), len(b))
P
  # Answers in pieces: of several weights, and the same in a resumed run.
  pieces() { rl 2 "$@" grpo "${drawn[@]}" --partial_rollout true --max_staleness 2 --max_steps 8 --save_steps 4 --log_completions true ${from:-}; }
  pieces pieces
  from="--resume_from_checkpoint pieces/checkpoint-4" pieces pieces-again
  cmp pieces/checkpoint-8/adapter_model.safetensors pieces-again/checkpoint-8/adapter_model.safetensors || fail "pieces: a resumed run differs"
  python3 - pieces/completions.jsonl <<'P'
import json, sys
for row in map(json.loads, open(sys.argv[1])):
    versions = row["versions"]
    assert sum(tokens for _, tokens in versions) == row["tokens"], row
    round = (row["step"] - 1) // 2
    if row["tokens"] > 8: assert [v for v, _ in versions] == sorted({2 * max(0, r) for r in range(round - 2, round + 1)}), row
P
  ;;
draws)  # answers drawn by a model in parts, and learnt from: those of one process, or of as many that hold all
  "$apus" init --preset tiny-moe --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  "$apus" init --preset tiny --output_dir teacher --torch_dtype float32 --seed 4 2>/dev/null
  head -3 rows.jsonl >few.jsonl
  rewarded=(--dataset rows.jsonl --reward_funcs "external:python3 sums.py")
  same_answers() {  # same_answers FILE OTHER
    python3 - "$@" <<'P'
import json, sys
a, b = ([json.loads(line)["completion_ids"] for line in open(f)] for f in sys.argv[1:])
assert a == b and len(a) >= 16, f"other answers were drawn: {len(a)}, {len(b)}"
P
  }
  grpo=("${rewarded[@]}" --val_dataset few.jsonl --num_generations 4 --per_device_train_batch_size 4 --num_iterations 2 --beta 0.1 --log_entropy true
    --entropy_coef 0.01 --max_steps 6 --eval_steps 3)
  numbers=(loss grad_norm reward reward_std kl entropy/mean eval_loss eval_reward)
  for tuner in full lora; do  # a second model is the reference, or the policy without its adapter
    for ranks in 1 2; do
      rl $ranks tensor-$tuner$ranks grpo "${grpo[@]}" --tuner_type $tuner --gradient_accumulation_steps 2 --dump_rollouts "$PWD/tensor-$tuner$ranks.said" \
        --dynamic_sample true --tensor_model_parallel_size $ranks
    done
    numbers_alike tensor-${tuner}1 tensor-${tuner}2 "${numbers[@]}" || fail "tensor, $tuner"
    same_answers tensor-${tuner}1.said tensor-${tuner}2.said || fail "tensor, $tuner"
  done
  says tensor-full2.log "2 ranks share out the matrices of the model"
  # Two that read other rows, of whom one has fewer in the end; experts on both, and matrices halved besides.
  mixture=("${grpo[@]}" --model mixture --max_steps -1 --num_train_epochs 1 --eval_steps 6 --gradient_accumulation_steps 2)
  rl 2 whole grpo "${mixture[@]}" --dump_rollouts "$PWD/whole.said"
  rl 2 experts grpo "${mixture[@]}" --dump_rollouts "$PWD/experts.said" --expert_model_parallel_size 2
  rl 4 both grpo "${mixture[@]}" --dump_rollouts "$PWD/both.said" --expert_model_parallel_size 2 --tensor_model_parallel_size 2
  for out in experts both; do
    numbers_alike whole $out "${numbers[@]}" || fail "$out"
    for rank in 0 1; do same_answers whole.said.$rank $out.said.$rank || fail "$out"; done
  done
  # The likeliest answers are the same however many ask: a critic and reward models in parts, a teacher, answers in evaluations; rewards that are learnt.
  sed 's/}$/,"rejected_response":"no"}/' rows.jsonl >pairs.jsonl
  for parts in none tensor experts; do
    ranks=2 each=3 share=(--expert_model_parallel_size 2)
    [ $parts != none ] || ranks=1 each=6 share=()
    [ $parts != tensor ] || each=6 share=(--tensor_model_parallel_size 2)
    rl $ranks rm-$parts rm --model mixture --dataset pairs.jsonl --per_device_train_batch_size 2 --gradient_accumulation_steps $each --max_steps 4 --save_steps 4 \
      --val_dataset pairs.jsonl --eval_steps 2 --tuner_type full "${share[@]}"
    rate=1e-4 rl $ranks ppo-$parts ppo --model mixture "${rewarded[@]}" --reward_model rm-none/checkpoint-4 --top_k 1 --num_ppo_epochs 2 --critic_warmup_rounds 1 \
      --per_device_train_batch_size 2 --gradient_accumulation_steps $each --max_steps 6 --save_steps 6 --tuner_type full "${share[@]}"
    rl $ranks gkd-$parts gkd --model mixture --dataset rows.jsonl --teacher_model teacher --lmbda 0.7 --top_k 1 --sft_alpha 0.1 --per_device_train_batch_size 2 \
      --gradient_accumulation_steps $each --max_steps 5 "${share[@]}"
    NPROC_PER_NODE=$ranks "$apus" sft --model mixture --dataset rows.jsonl --val_dataset few.jsonl --device cpu --output_dir answers-$parts --add_version false \
      --torch_dtype float32 --max_steps 3 --eval_steps 1 --logging_steps 1 --gradient_accumulation_steps $each --predict_with_generate true \
      --max_new_tokens 8 --lora_dropout 0 "${share[@]}" >answers-$parts.log 2>&1 || { cat answers-$parts.log >&2; fail "answers-$parts"; }
    [ $parts != none ] || continue
    numbers_alike rm-none rm-$parts loss grad_norm eval_loss accuracy || fail "rm, $parts"
    weights_alike rm-none/checkpoint-4 rm-$parts/checkpoint-4 || fail "rm, $parts: other weights"
    numbers_alike ppo-none ppo-$parts loss grad_norm reward kl loss/value_avg || fail "ppo, $parts"
    weights_alike ppo-none/checkpoint-6/critic ppo-$parts/checkpoint-6/critic || fail "ppo, $parts: another critic"
    numbers_alike gkd-none gkd-$parts loss grad_norm completions/mean_length || fail "gkd, $parts"
    numbers_alike answers-none answers-$parts eval_loss eval_rouge-l eval_acc || fail "--predict_with_generate, $parts"
    [ $parts != tensor ] || cmp answers-none/predict.jsonl answers-tensor/predict.jsonl || fail "--predict_with_generate: other answers"
  done
  ;;
agree)  # other weights, rows or states under the same path: told before the first step by file and rank
  "$apus" init --preset tiny --output_dir other --torch_dtype float32 --seed 4 2>/dev/null
  sed '$d' rows.jsonl >fewer.jsonl
  two() {  # two OUT FLAGS...: each rank in a folder of its own, where the same paths may hold other things
    local out=$1 code=0 port=$((20000 + RANDOM % 20000)) pids=()
    shift
    for rank in 0 1; do
      (cd rank$rank && RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$apus" sft --model model --dataset /proc/self/cwd/rows.jsonl --device cpu --output_dir ../$out --add_version false --torch_dtype float32 \
        --max_steps 2 --logging_steps 1 "$@" >../$out.$rank.log 2>&1) &
      pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    return $code
  }
  mkdir rank0 rank1
  for rank in 0 1; do ln -s ../model rank$rank/model; cp rows.jsonl rank$rank/; done
  two fine || { cat fine.0.log >&2; fail "the same on both"; }
  cp fewer.jsonl rank1/rows.jsonl
  code=0; two rows || code=$?
  [ $code = 2 ] || fail "other rows: exit code $code"
  says rows.0.log 'the rows differ between ranks: rank 0 has `rows.jsonl: 25 rows, [0-9a-f]+`, rank 1 has `rows.jsonl: 24 rows'
  cp rows.jsonl rank1/rows.jsonl
  ln -sfn ../other rank1/model
  code=0; two weights || code=$?
  [ $code = 2 ] || fail "other weights: exit code $code"
  says weights.0.log 'the weights differ between ranks: rank 0 has `model.[a-z_.0-9]+ float [0-9a-f]+`, rank 1 has'
  two sent --broadcast_weights true --learning_rate 1e-3 || { cat sent.0.log >&2; fail "--broadcast_weights"; }
  ln -sfn ../model rank1/model
  two alike --learning_rate 1e-3 || fail "the same on both"
  cmp sent/checkpoint-2/adapter_model.safetensors alike/checkpoint-2/adapter_model.safetensors || fail "other weights than rank 0's"
  for rank in 0 1; do cp -r alike/checkpoint-2 rank$rank/state; done
  sed -i 's/"epoch": *[0-9]*/"epoch": 7/' rank1/state/apus_state.json
  code=0; two state --resume_from_checkpoint state --max_steps 4 || code=$?
  [ $code = 2 ] || { cat state.0.log >&2; fail "another state: exit code $code"; }
  says state.0.log 'the states to go on from differ between ranks'
  ;;
zero)  # every strategy trains as one process does, on processors and over the simulated NPU's library; bad ones are refused
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  train 1 cpu whole --num_train_epochs 1 --save_steps 2 --tuner_type full
  for strategy in zero1 zero2 zero3; do
    train 2 cpu lora-$strategy --deepspeed $strategy --num_train_epochs 1 --save_steps 2 || { cat lora-$strategy.log >&2; fail "$strategy"; }
    alike one lora-$strategy || fail "$strategy, LoRA: other losses"
    train 3 cpu full-$strategy --deepspeed $strategy --num_train_epochs 1 --save_steps 2 --tuner_type full || { cat full-$strategy.log >&2; fail "$strategy"; }
    alike whole full-$strategy || fail "$strategy, full: other losses"
  done
  says full-zero3.log "3 ranks share out weights, gradients and the optimizer's state: rank 0 updates [0-9]+ numbers and holds"
  [ -f full-zero3/checkpoint-4/optimizer-00003-of-00003.safetensors ] || fail "no slice of the third rank"
  train 1 cpu again --num_train_epochs 1 --save_steps 2 --tuner_type full --resume_from_checkpoint full-zero3/checkpoint-2 || { cat again.log >&2; fail "resume"; }
  alike whole again 3 || fail "gone on with one rank: other losses"
  train 6 cpu hybrid --fsdp "hybrid_shard auto_wrap" --shard_group_size 2 --num_train_epochs 1 --save_steps 2 --tuner_type full || { cat hybrid.log >&2; fail "hybrid"; }
  alike whole hybrid || fail "groups of two hold the weights: other losses"
  says hybrid.log "2 of 6 ranks share out weights, gradients and the optimizer's state"
  [ -f hybrid/checkpoint-4/optimizer-00002-of-00002.safetensors ] || fail "the state is not of one group"
  train 1 cpu again --num_train_epochs 1 --save_steps 2 --tuner_type full --resume_from_checkpoint hybrid/checkpoint-2 || { cat again.log >&2; fail "resume"; }
  alike whole again 3 || fail "gone on with one rank from groups: other losses"
  for strategy in zero2 zero3_offload; do
    LD_LIBRARY_PATH=$sim/lib train 2 npu npu-$strategy --deepspeed $strategy --num_train_epochs 1 --save_steps 2 --tuner_type full || { cat npu-$strategy.log >&2; fail "npu $strategy"; }
    alike whole npu-$strategy || fail "npu, $strategy: other losses"
  done
  head -1 rows.jsonl | sed 's/}$/,"rejected_response":"no"}/' >pair.jsonl  # one of two ranks has no batch from the start
  for ranks in 1 2; do
    NPROC_PER_NODE=$ranks "$apus" rlhf --rlhf_type dpo --model model --dataset pair.jsonl --device cpu --output_dir dpo$ranks --add_version false --torch_dtype float32 \
      --learning_rate 1e-3 --max_steps 2 --gradient_accumulation_steps 1 --logging_steps 1 --deepspeed zero3 >dpo$ranks.log 2>&1 || { cat dpo$ranks.log >&2; fail "dpo"; }
  done
  alike dpo1 dpo2 2 || fail "a rank without a batch in the first step: other losses"
  # Three rows for two ranks: in training and evaluation one has fewer than the other.
  head -3 rows.jsonl | sed '2s/}$/,"label":false}/; 1s/}$/,"label":true}/; 3s/}$/,"label":true}/' >labels.jsonl
  for strategy in zero1 zero3; do
    NPROC_PER_NODE=2 "$apus" rlhf --rlhf_type kto --model model --dataset labels.jsonl --val_dataset labels.jsonl --device cpu --output_dir kto-$strategy --add_version false \
      --torch_dtype float32 --learning_rate 1e-3 --num_train_epochs 2 --gradient_accumulation_steps 2 --logging_steps 1 --eval_steps 1 --deepspeed $strategy --ddp_timeout 60 >kto-$strategy.log 2>&1 || { cat kto-$strategy.log >&2; fail "kto $strategy"; }
  done
  alike kto-zero1 kto-zero3 4 || fail "kto, ranks with different numbers of rows: other losses"
  code=0; train 2 cpu bad --deepspeed zero3 --optim adafactor || code=$?
  [ $code = 2 ] || fail "adafactor: exit code $code"
  says bad.log "looks at whole matrices"
  ;;
sequence)  # two share out the tokens of each row, alone, twice, and with weights shared out besides
  pairs() { sed 's/}$/,"rejected_response":"no"}/' rows.jsonl >pairs.jsonl; }
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  train 1 cpu packed --num_train_epochs 1 --save_steps 2 --packing true --max_length 200 --tuner_type full
  share() { local ranks=$1 out=$2; shift 2; sharers=2 train "$ranks" cpu "$out" --sequence_parallel_size 2 --save_steps 2 "$@" || { cat "$out.log" >&2; fail "$out"; }; }
  share 2 two --num_train_epochs 1
  alike one two || fail "two ranks for each row: other losses"
  share 4 four --num_train_epochs 1
  alike one four || fail "four ranks, two for each row: other losses"
  share 2 shared --num_train_epochs 1 --packing true --max_length 200 --tuner_type full --deepspeed zero3
  alike packed shared 2 || fail "packed rows, zero3: other losses"
  train 1 cpu again --num_train_epochs 1 --save_steps 2 --resume_from_checkpoint four/checkpoint-2 || { cat again.log >&2; fail "resume"; }
  alike one again 3 || fail "gone on with one rank: other losses"
  says two.log "2 ranks share out the tokens of each row"
  pairs
  for ranks in 1 2; do
    NPROC_PER_NODE=$ranks "$apus" rlhf --rlhf_type dpo --model model --dataset pairs.jsonl --device cpu --output_dir dpo$ranks --add_version false --torch_dtype float32 \
      --learning_rate 1e-3 --max_steps 5 --gradient_accumulation_steps 3 --logging_steps 1 --sequence_parallel_size $ranks >dpo$ranks.log 2>&1 || { cat dpo$ranks.log >&2; fail "dpo"; }
  done
  alike dpo1 dpo2 || fail "dpo: other losses"
  for i in $(seq 1 12); do
    printf '{"messages":[{"role":"user","content":"question %d"}],"positive_messages":[[{"role":"user","content":"answer %d%*s"}]],"negative_messages":[[{"role":"user","content":"no"}]]}\n' "$i" "$i" $((i % 5)) .
  done >texts.jsonl
  for ranks in 1 2 4; do  # what is compared is counted once
    NPROC_PER_NODE=$ranks "$apus" sft --task_type embedding --model model --dataset texts.jsonl --device cpu --output_dir vectors$ranks --add_version false --torch_dtype float32 \
      --learning_rate 1e-3 --max_steps 5 --per_device_train_batch_size $((ranks == 4 ? 2 : 4)) --gradient_accumulation_steps 1 --logging_steps 1 --lora_dropout 0 \
      --eval_strategy steps --eval_steps 5 --val_dataset texts.jsonl --sequence_parallel_size $((ranks == 1 ? 1 : 2)) >vectors$ranks.log 2>&1 || { cat vectors$ranks.log >&2; fail "embedding"; }
  done
  alike vectors1 vectors2 || fail "embedding: other losses"
  alike vectors1 vectors4 || fail "embedding, two for each row: other losses"
  code=0; train 2 cpu bad --sequence_parallel_size 4 || code=$?
  [ $code = 2 ] || fail "more than ranks: exit code $code"
  says bad.log "start with NPROC_PER_NODE=4"
  ;;
ring)  # keys and values go round: more ranks than key-value heads divide by, windows, sinks, soft caps, slopes, one vector for all heads
  make() {  # make NAME MODEL_TYPE MORE: settings of config.json besides
    python3 - "$@" <<'P'
import json, sys
name, kind, more = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
json.dump({"model_type": kind, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16, "intermediate_size": 96, "vocab_size": 2048,
           "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": True, **more}, open(name + ".json", "w"))
P
    "$apus" init --config $1.json --tokenizer model --output_dir models/$1 --torch_dtype float32 --seed 3 >$1.log 2>&1 || { cat $1.log >&2; fail "init $1"; }
  }
  make two llama '{"num_key_value_heads": 2}'
  make one llama '{"num_key_value_heads": 1}'
  make windows gemma2 '{"num_key_value_heads": 1, "sliding_window": 9, "query_pre_attn_scalar": 16, "hidden_activation": "gelu_pytorch_tanh"}'
  make sinks gpt_oss '{"num_key_value_heads": 2, "sliding_window": 9, "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}'
  make slopes bloom '{"n_head": 4, "n_layer": 3}'
  make latent deepseek_v3 '{"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}'
  seen() {  # seen MODEL SHARERS RANKS OUT FLAGS...: three updates
    local which=$1 sharers=$2 ranks=$3 out=$4; shift 4
    rm -rf model && ln -s models/$which model
    train "$ranks" "${device:-cpu}" "$out" --max_steps 3 --save_steps 3 --sequence_parallel_size $sharers "$@" || { cat "$out.log" >&2; fail "$out"; }
  }
  mv model models/words
  full=(--tuner_type full --packing true --max_length 200) rows=(--tuner_type full --per_device_train_batch_size 2)
  for which in two one windows sinks slopes latent; do
    seen $which 1 1 $which "${full[@]}"
    seen $which 4 4 $which-4 "${full[@]}"
    alike $which $which-4 4 || fail "$which, four for each row: other losses"
    weights_alike $which/checkpoint-3 $which-4/checkpoint-3 || fail "$which, four for each row: other weights"
  done
  says two-4.log "4 ranks share out the tokens of each row; keys and values go round among 2 groups of them, which share out heads"
  says one-4.log "4 ranks share out the tokens of each row; keys and values go round among 4 of them"
  seen one 1 1 rows "${rows[@]}"
  seen one 2 2 rows-2 "${rows[@]}" --gradient_checkpointing false
  seen one 2 4 rows-4 "${rows[@]}" --deepspeed zero2
  seen one 2 4 one-zero3 "${full[@]}" --deepspeed zero3
  seen two 2 4 two-tensor "${full[@]}" --tensor_model_parallel_size 2
  seen one 2 4 one-stages "${full[@]}" --pipeline_model_parallel_size 2
  for out in rows-2 rows-4 one-zero3 two-tensor one-stages; do
    alike ${out%-*} $out 4 || fail "$out: other losses"
    weights_alike ${out%-*}/checkpoint-3 $out/checkpoint-3 || fail "$out: other weights"
  done
  seen one 1 1 lora
  seen one 2 2 lora-2
  alike lora lora-2 4 || fail "LoRA, whose masks of dropout are those of one process: other losses"
  for which in two windows; do
    LD_LIBRARY_PATH=$sim/lib device=npu seen $which 4 4 npu-$which "${full[@]}"
    alike $which npu-$which 4 || fail "npu, $which: other losses"
  done
  ;;
states)  # layers with a state: more ranks than heads, every kind of layer, packed rows, recompute, zero2, LoRA with dropout
  mv model words && mkdir models
  for which in qwen3_next qwen3_5_text kimi_linear ling2_5 nemotron_h falcon_h1 falcon_mamba minimax lfm2 recurrent_gemma; do
    python3 - "$data/models/$which/checkpoint/config.json" $which.json <<'P'
import json, sys
config = {k: v for k, v in json.load(open(sys.argv[1])).items() if not k.endswith("_token_id")}
json.dump({**config, "vocab_size": 2048}, open(sys.argv[2], "w"))
P
    "$apus" init --config $which.json --tokenizer words --output_dir models/$which --torch_dtype float32 --seed 3 >$which.log 2>&1 || { cat $which.log >&2; fail "init $which"; }
  done
  held() {  # held WHICH NAME SHARERS RANKS FLAGS...: three updates, against one process
    local which=$1 name=$2 sharers=$3 ranks=$4; shift 4
    rm -rf model && ln -s models/$which model
    [ -d $which-$name ] || sharers=1 train 1 "${device:-cpu}" $which-$name --max_steps 3 --save_steps 3 "${kept[@]}" || { cat $which-$name.log >&2; fail "$which $name"; }
    train "$ranks" "${device:-cpu}" $which-$name-$ranks --max_steps 3 --save_steps 3 --sequence_parallel_size $sharers "${kept[@]}" "$@" ||
      { cat $which-$name-$ranks.log >&2; fail "$which $name, $ranks"; }
    alike $which-$name $which-$name-$ranks 4 1e-5 || fail "$which $name, $ranks: other losses"
    [ ! -e $which-$name/checkpoint-3/model.safetensors ] || weights_alike $which-$name/checkpoint-3 $which-$name-$ranks/checkpoint-3 || fail "$which $name, $ranks: other weights"
  }
  kept=(--tuner_type full --packing true --max_length 100)
  for which in qwen3_next kimi_linear ling2_5 nemotron_h falcon_h1 falcon_mamba minimax lfm2 recurrent_gemma; do held $which packed 4 4; done
  says qwen3_next-packed-4.log "4 ranks share out the tokens of each row; keys and values go round among 2 groups of them, which share out heads"
  says falcon_mamba-packed-4.log "4 ranks share out the tokens of each row, and heads"
  kept=(--tuner_type full --per_device_train_batch_size 2 --gradient_checkpointing false)
  held qwen3_next rows 2 4 --deepspeed zero2
  held lfm2 rows 2 2
  kept=(--lora_dropout 0.1)
  held qwen3_5_text lora 2 2
  held falcon_h1 lora 2 4 --deepspeed zero2
  export LD_LIBRARY_PATH=$sim/lib device=npu
  kept=(--tuner_type full --packing true --max_length 100)
  held qwen3_next npu 2 2
  ;;
tensor)  # two share out the matrices: full, LoRA, DoRA, preferences, with data parallel and zero1; more ranks than key-value heads
  half() { local ranks=$1 out=$2; shift 2; sharers=2 train "$ranks" cpu "$out" --tensor_model_parallel_size 2 "$@" || { cat "$out.log" >&2; fail "$out"; }; }
  train 1 cpu packed --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full
  half 2 halves --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full
  says halves.log "2 ranks share out the matrices of the model"
  alike packed halves || fail "packed rows, full: other losses"
  weights_alike packed/checkpoint-5 halves/checkpoint-5
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  half 4 lora --num_train_epochs 1 --save_steps 2 --deepspeed zero1
  alike one lora || fail "LoRA, four ranks, zero1: other losses"
  half 4 again --num_train_epochs 1 --save_steps 2 --deepspeed zero1 --resume_from_checkpoint lora/checkpoint-2
  alike lora again 3 || fail "a resumed run has other losses"
  half 4 rows --max_steps 5 --save_steps 2 --packing true --max_length 100 --tuner_type full --deepspeed zero3
  says rows.log "2 of 4 ranks share out weights, gradients and the optimizer's state"
  alike packed rows 1 || fail "rows of the parts shared out as well: other losses"
  weights_alike packed/checkpoint-5 rows/checkpoint-5
  half 4 resumed --max_steps 5 --save_steps 2 --packing true --max_length 100 --tuner_type full --deepspeed zero3 --resume_from_checkpoint rows/checkpoint-2
  alike rows resumed 3 || fail "gone on with parts and rows: other losses"
  weights_alike rows/checkpoint-5 resumed/checkpoint-5
  train 1 cpu dora1 --max_steps 4 --use_dora true
  half 4 dora4 --max_steps 4 --use_dora true --deepspeed zero3
  alike dora1 dora4 || fail "DoRA, four ranks, zero3: other losses"
  half 2 dora2 --max_steps 4 --use_dora true
  alike dora1 dora2 || fail "DoRA: other losses"
  code=0; train 1 cpu bad --tensor_model_parallel_size 2 || code=$?
  [ $code = 2 ] || fail "fewer ranks: exit code $code"
  says bad.log "start with NPROC_PER_NODE=2"
  ;;
residual)  # those that share out matrices share out the tokens between them too: layers that run again, every mesh, layers of other kinds
  between() {  # between SHARERS RANKS OUT FLAGS...
    local ranks=$2 out=$3
    sharers=$1 train "$ranks" "${device:-cpu}" "$out" --tensor_model_parallel_size ${tensor:-2} --sequence_parallel true "${@:4}" || { cat "$out.log" >&2; fail "$out"; }
  }
  full=(--max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full)
  train 1 cpu packed "${full[@]}"
  between 2 2 two "${full[@]}"
  says two.log "2 ranks share out the matrices of the model, and the tokens between them"
  between 2 2 kept "${full[@]}" --gradient_checkpointing false
  between 2 2 some "${full[@]}" --recompute_granularity selective
  between 2 4 rows "${full[@]}" --deepspeed zero3
  between 4 4 tokens "${full[@]}" --sequence_parallel_size 2 --deepspeed zero1
  between 4 4 stages "${full[@]}" --pipeline_model_parallel_size 2 --gradient_checkpointing false
  tensor=4 between 4 4 four "${full[@]}"
  for out in two kept some rows tokens stages four; do
    alike packed $out $([ $out != rows ] || echo 1) || fail "$out: other losses"
    weights_alike packed/checkpoint-5 $out/checkpoint-5 || fail "$out: other weights"
  done
  noise=(--num_train_epochs 1 --save_steps 2 --neftune_noise_alpha 5)
  train 1 cpu one "${noise[@]}"
  between 2 4 lora "${noise[@]}" --deepspeed zero1
  between 2 2 lora-some "${noise[@]}" --recompute_granularity selective
  for out in lora lora-some; do alike one $out || fail "$out, with dropout and noise: other losses"; done
  train 1 cpu dora1 --max_steps 4 --use_dora true
  between 2 2 dora2 --max_steps 4 --use_dora true --recompute_granularity selective
  alike dora1 dora2 || fail "DoRA: other losses"
  LD_LIBRARY_PATH=$sim/lib device=npu between 2 2 npu "${full[@]}"
  alike packed npu || fail "npu: other losses"
  # Two norms side by side, norms behind mixers, a table of positions, a mixture with experts apart.
  mv model words
  for which in cohere2 gemma2 opt glm4_moe; do
    python3 - "$data/models/$which/checkpoint/config.json" $which.json <<'P'
import json, sys
config = {k: v for k, v in json.load(open(sys.argv[1])).items() if not k.endswith("_token_id")}
json.dump({**config, "vocab_size": 2048}, open(sys.argv[2], "w"))
P
    rm -rf model && "$apus" init --config $which.json --tokenizer words --output_dir model --torch_dtype float32 --seed 3 >$which.log 2>&1 || { cat $which.log >&2; fail "init $which"; }
    more=() && [ $which != glm4_moe ] || more=(--router_aux_loss_coef 0.02)
    train 1 cpu $which "${full[@]}" "${more[@]}"
    between 2 2 $which-2 "${full[@]}" "${more[@]}" --gradient_checkpointing false
    alike $which $which-2 || fail "$which: other losses"
    weights_alike $which/checkpoint-5 $which-2/checkpoint-5 || fail "$which: other weights"
  done
  between 2 4 experts "${full[@]}" "${more[@]}" --expert_model_parallel_size 2
  alike glm4_moe experts || fail "experts apart: other losses"
  rm -r model && mv words model
  # Answers are drawn as they are without it.
  for ranks in 1 2; do
    rl $ranks drawn$ranks grpo --dataset rows.jsonl --reward_funcs "external:python3 sums.py" --num_generations 4 --per_device_train_batch_size 4 \
      --num_iterations 2 --beta 0.1 --gradient_accumulation_steps 2 --max_steps 6 --tuner_type full --tensor_model_parallel_size $ranks \
      $([ $ranks = 1 ] || echo --sequence_parallel true)
  done
  numbers_alike drawn1 drawn2 loss grad_norm reward kl || fail "answers"
  NPROC_PER_NODE=2 "$apus" megatron sft --model model --dataset rows.jsonl --device cpu --output_dir mega --add_version false --torch_dtype float32 \
    --tensor_model_parallel_size 2 --sequence_parallel true --train_iters 2 --global_batch_size 4 >mega.log 2>&1 || { cat mega.log >&2; fail "megatron"; }
  says mega.log "share out the matrices of the model, and the tokens between them"
  code=0; train 2 cpu bad --sequence_parallel true --sequence_parallel_size 2 || code=$?
  [ $code = 2 ] || fail "without matrices that are shared out: exit code $code"
  says bad.log "give --tensor_model_parallel_size with it"
  ;;
experts)  # mixtures: matrices, experts or both shared out; full, LoRA and DoRA on experts, preferences, with zero1 and shared rows
  "$apus" init --preset tiny-moe --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  rm -r model && mv mixture model
  run() { local sharers=$1 ranks=$2 out=$3; shift 3; train "$ranks" cpu "$out" "$@" || { cat "$out.log" >&2; fail "$out"; }; }
  full=(--max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full --router_aux_loss_coef 0.02)
  run 1 1 whole "${full[@]}"
  run 2 2 matrices "${full[@]}" --tensor_model_parallel_size 2
  run 1 2 experts "${full[@]}" --expert_model_parallel_size 2
  run 2 4 both "${full[@]}" --tensor_model_parallel_size 2 --expert_model_parallel_size 2 --deepspeed zero1
  run 2 2 tokens "${full[@]}" --sequence_parallel_size 2 --expert_model_parallel_size 2 --deepspeed zero2
  for out in matrices experts both tokens; do
    alike whole $out || fail "$out: other losses"
    weights_alike whole/checkpoint-5 $out/checkpoint-5 || fail "$out: other weights"
  done
  says both.log "2 ranks share out the experts of each layer"
  lora=(--max_steps 4 --save_steps 2 --lora_dropout 0)
  run 1 1 lora1 "${lora[@]}"
  run 1 2 lora2 "${lora[@]}" --expert_model_parallel_size 2 --deepspeed zero1
  alike lora1 lora2 || fail "LoRA on experts: other losses"
  run 1 2 again "${lora[@]}" --expert_model_parallel_size 2 --deepspeed zero1 --resume_from_checkpoint lora2/checkpoint-2
  alike lora2 again 2 || fail "a resumed run has other losses"
  weights_alike lora1/checkpoint-4 lora2/checkpoint-4 || fail "LoRA on experts: another adapter"
  # Dropout masks are those of one process: of the place that a row had before it was sent.
  for kind in "" "--use_dora true"; do
    rm -rf dropped1 dropped2
    run 1 1 dropped1 "${lora[@]}" --lora_dropout 0.3 $kind
    run 1 2 dropped2 "${lora[@]}" --lora_dropout 0.3 $kind --expert_model_parallel_size 2
    alike dropped1 dropped2 || fail "LoRA with dropout on experts: other losses $kind"
    ! alike lora1 dropped2 2>/dev/null || fail "dropout does nothing"
  done
  run 1 1 dora1 "${lora[@]}" --use_dora true
  run 2 4 dora4 "${lora[@]}" --use_dora true --tensor_model_parallel_size 2 --expert_model_parallel_size 2
  alike dora1 dora4 || fail "DoRA on experts: other losses"
  sed 's/}$/,"rejected_response":"no"}/' rows.jsonl >pairs.jsonl
  for ranks in 1 2; do
    NPROC_PER_NODE=$ranks "$apus" rlhf --rlhf_type dpo --model model --dataset pairs.jsonl --device cpu --output_dir dpo$ranks --add_version false --torch_dtype float32 \
      --learning_rate 1e-3 --max_steps 4 --gradient_accumulation_steps $((4 / ranks)) --logging_steps 1 --lora_dropout 0 --expert_model_parallel_size $ranks >dpo$ranks.log 2>&1 || { cat dpo$ranks.log >&2; fail "dpo"; }
  done
  alike dpo1 dpo2 || fail "dpo: other losses"
  code=0; train 2 cpu bad --expert_model_parallel_size 4 || code=$?
  [ $code = 2 ] || fail "fewer ranks: exit code $code"
  says bad.log "start with NPROC_PER_NODE=4"
  ;;
meshes)  # a checkpoint of any mesh goes on under any other, with the optimizer's state
  "$apus" init --preset tiny-moe --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  mv model dense
  # NAME SHARERS RANKS FLAGS...
  meshes=("one 1 1" "tensor 2 2 --tensor_model_parallel_size 2" "stages 2 2 --pipeline_model_parallel_size 2"
    "both 2 4 --tensor_model_parallel_size 2 --deepspeed zero1" "zero3 1 2 --deepspeed zero3" "rows 2 4 --tensor_model_parallel_size 2 --deepspeed zero3")
  run() {  # run OUT MESH FLAGS...
    local out=$1 mesh
    read -ra mesh <<<"$2"
    shift 2
    sharers=${mesh[1]} train "${mesh[2]}" cpu "$out" --tuner_type full --max_steps 4 --save_steps 2 --split_dataset_ratio 0 "${mesh[@]:3}" "$@" || { cat "$out.log" >&2; fail "$out"; }
  }
  for kind in dense mixture; do
    rm -rf model && cp -r $kind model
    [ $kind = dense ] || meshes[5]="experts 1 2 --expert_model_parallel_size 2"
    for mesh in "${meshes[@]}"; do run $kind-${mesh%% *} "$mesh"; done
    for ((i = 0; i < 6; i++)); do
      from=${meshes[i]%% *} to=${meshes[(i + 1) % 6]}
      run $kind-$from-on "$to" --resume_from_checkpoint $kind-$from/checkpoint-2
      alike $kind-one $kind-$from-on 2 || fail "$kind: from $from to ${to%% *}: other losses"
    done
    says $kind-tensor-on.log "the optimizer's state is put together anew"
  done
  run blocks "${meshes[1]}" --optim adamw_8bit
  sharers=1 train 1 cpu blocks-on --tuner_type full --optim adamw_8bit --max_steps 4 --split_dataset_ratio 0 --resume_from_checkpoint blocks/checkpoint-2 && fail "blocks were divided"
  says blocks-on.log "not of its parameter's shape, and cannot be divided otherwise"
  ;;
quantised)  # weights that are held quantised, cut in every way: a checkpoint's own, and those that are made as they are read
  run() { local sharers=$1 ranks=$2 out=$3; shift 3; train "$ranks" cpu "$out" --max_steps 4 --save_steps 4 --lora_dropout 0 "$@" || { cat "$out.log" >&2; fail "$out"; }; }
  "$apus" init --preset tiny-moe --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  mv model plain
  for kind in plain mixture; do
    rm -rf model
    "$apus" export --model $kind --quant_method bnb --quant_bits 4 --output_dir model >export.log 2>&1 || { cat export.log >&2; fail "export"; }
    run 1 1 $kind-one
    run 2 2 $kind-tensor --tensor_model_parallel_size 2
    run 2 2 $kind-stages --pipeline_model_parallel_size 2
    run 1 2 $kind-zero3 --deepspeed zero3
    run 2 4 $kind-both --tensor_model_parallel_size 2 --deepspeed zero3
    for out in tensor stages zero3 both; do
      alike $kind-one $kind-$out || fail "$kind, $out: other losses"
      [ $kind = mixture ] || weights_alike $kind-one/checkpoint-4 $kind-$out/checkpoint-4 || fail "$kind, $out: another adapter"
    done
  done
  # In bf16 experts stay quantised: each rank holds its own.
  held=(--torch_dtype bfloat16 --split_dataset_ratio 0)
  run 1 1 held-one "${held[@]}"
  run 1 2 held-experts "${held[@]}" --expert_model_parallel_size 2
  run 1 2 held-zero3 "${held[@]}" --deepspeed zero3
  alike held-one held-experts 4 2e-3 && alike held-one held-zero3 4 5e-3 || fail "experts that are held quantised: other losses"
  rm -rf model && mv plain model
  made=(--quant_method bnb --quant_bits 4 --bnb_4bit_use_double_quant false)
  run 1 1 made-one "${made[@]}"
  run 2 2 made-tensor "${made[@]}" --tensor_model_parallel_size 2
  run 1 2 made-zero3 "${made[@]}" --deepspeed zero3
  alike made-one made-tensor && alike made-one made-zero3 || fail "quantised as they are read: other losses"
  printf '{"messages":[{"role":"user","content":"question 3"}]}\n' >ask.jsonl
  for ranks in 1 2; do
    NPROC_PER_NODE=$ranks "$apus" infer --model model "${made[@]}" --torch_dtype float32 --val_dataset ask.jsonl --temperature 0 --max_new_tokens 12 --device cpu \
      --tensor_model_parallel_size $ranks --result_path said$ranks.jsonl >said.log 2>&1 || { cat said.log >&2; fail "answers of $ranks"; }
  done
  cmp said1.jsonl said2.jsonl || fail "answers differ"
  ;;
pipeline)  # each rank runs some of the layers: full with a tied head, LoRA, mixtures, preferences; with data parallel, zero1, cut matrices
  stages() {  # stages COUNT RANKS OUT FLAGS...
    local count=$1 ranks=$2 out=$3
    shift 3
    train "$ranks" cpu "$out" --pipeline_model_parallel_size "$count" "$@" || { cat "$out.log" >&2; fail "$out"; }
  }
  train 1 cpu packed --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full
  sharers=2 stages 2 2 two --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full --decoder_last_pipeline_num_layers 1
  says two.log "2 ranks run the layers one behind the other: rank 0 runs 0 to 2"
  alike packed two || fail "packed rows, full: other losses"
  weights_alike packed/checkpoint-5 two/checkpoint-5
  sharers=4 stages 2 4 cut --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full --tensor_model_parallel_size 2
  alike packed cut || fail "cut matrices: other losses"
  weights_alike packed/checkpoint-5 cut/checkpoint-5
  # Each runs two pieces in turn.
  turns="--virtual_pipeline_model_parallel_size 2"
  sharers=2 stages 2 2 turns --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full $turns
  says turns.log "rank 0 runs 0 to 0, then 2 to 2"
  alike packed turns || fail "pieces in turn: other losses"
  weights_alike packed/checkpoint-5 turns/checkpoint-5
  sharers=4 stages 2 4 turns4 --max_steps 5 --save_steps 5 --packing true --max_length 100 --tuner_type full --tensor_model_parallel_size 2 $turns
  alike packed turns4 || fail "pieces in turn, of cut matrices: other losses"
  train 1 cpu one --num_train_epochs 1 --save_steps 2
  sharers=2 stages 2 4 inturn --num_train_epochs 1 --save_steps 2 --deepspeed zero1 $turns
  alike one inturn || fail "LoRA, four ranks, pieces in turn: other losses"
  sharers=2 stages 2 4 straight --num_train_epochs 1 --save_steps 2 --deepspeed zero1 --resume_from_checkpoint inturn/checkpoint-2
  alike inturn straight 3 || fail "a run that goes on without pieces has other losses"
  sharers=2 stages 2 4 lora --num_train_epochs 1 --save_steps 2 --deepspeed zero1
  alike one lora || fail "LoRA, four ranks, zero1: other losses"
  sharers=2 stages 2 4 again --num_train_epochs 1 --save_steps 2 --deepspeed zero1 --resume_from_checkpoint lora/checkpoint-2
  alike lora again 3 || fail "a resumed run has other losses"
  "$apus" init --preset tiny-moe --output_dir shorter 2>/dev/null
  sed 's/"num_hidden_layers": 3/"num_hidden_layers": 4/' shorter/config.json >four.json
  "$apus" init --config four.json --tokenizer shorter --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  for count in 1 3; do
    sharers=$count stages $count $count mixture$count --model mixture --max_steps 4 --tuner_type full --router_aux_loss_coef 0.1
  done
  alike mixture1 mixture3 || fail "a mixture of experts: other losses"
  sharers=2 stages 2 2 mixture2 --model mixture --max_steps 4 --tuner_type full --router_aux_loss_coef 0.1 $turns
  alike mixture1 mixture2 || fail "a mixture of experts, pieces in turn: other losses"
  sharers=2 stages 2 4 mixture4 --model mixture --max_steps 4 --tuner_type full --router_aux_loss_coef 0.1 --expert_model_parallel_size 2 --deepspeed zero1
  alike mixture1 mixture4 || fail "two stages whose experts lie on two ranks each: other losses"
  weights_alike mixture1/checkpoint-4 mixture4/checkpoint-4 || fail "two stages whose experts lie on two ranks each: other weights"
  sed 's/}$/,"rejected_response":"no"}/' rows.jsonl >pairs.jsonl
  for mesh in "1 1" "2 1" "2 2"; do
    read -r count pieces <<<"$mesh"
    NPROC_PER_NODE=$count "$apus" rlhf --rlhf_type dpo --model model --dataset pairs.jsonl --device cpu --output_dir dpo$count$pieces --add_version false --torch_dtype float32 \
      --learning_rate 1e-3 --max_steps 5 --gradient_accumulation_steps 3 --logging_steps 1 --pipeline_model_parallel_size $count \
      --virtual_pipeline_model_parallel_size $pieces >dpo.log 2>&1 || { cat dpo.log >&2; fail "dpo"; }
  done
  for other in dpo21 dpo22; do alike dpo11 $other || fail "$other: other losses"; done
  code=0; train 2 cpu bad --pipeline_model_parallel_size 2 --deepspeed zero3 || code=$?
  [ $code = 2 ] || fail "zero3: exit code $code"
  says bad.log "use --deepspeed zero1"
  ;;
sights)  # models that see: towers whole on each rank, what they see in all layers that read it; matrices, tokens, layers and experts shared out
  make_seeing_models "$apus" "$data" || fail "init of models that see"
  see() {  # see SHARERS RANKS OUT FLAGS...
    local sharers=$1 ranks=$2 out=$3
    shift 3
    train "$ranks" cpu "$out" --dataset seen.jsonl --max_steps 4 --save_steps 4 --router_aux_loss_coef 0.02 "$@" || { cat "$out.log" >&2; fail "$out"; }
  }
  full=(--tuner_type full --freeze_vit false --freeze_aligner false)
  for model in qwen3_vl qwen3_vl_moe; do
    see 1 1 one-$model --model $model "${full[@]}"
    see 2 2 tensor-$model --model $model "${full[@]}" --tensor_model_parallel_size 2
    see 2 2 between-$model --model $model "${full[@]}" --tensor_model_parallel_size 2 --sequence_parallel true
    see 2 2 tokens-$model --model $model "${full[@]}" --sequence_parallel_size 2
    see 2 2 stages-$model --model $model "${full[@]}" --pipeline_model_parallel_size 2
    for out in tensor between tokens stages; do
      alike one-$model $out-$model || fail "$model, $out: other losses"
      weights_alike one-$model/checkpoint-4 $out-$model/checkpoint-4 || fail "$model, $out: other weights"
    done
  done
  see 1 2 experts --model qwen3_vl_moe "${full[@]}" --expert_model_parallel_size 2 --deepspeed zero1
  see 4 4 all --model qwen3_vl_moe "${full[@]}" --tensor_model_parallel_size 2 --pipeline_model_parallel_size 2
  for out in experts all; do
    alike one-qwen3_vl_moe $out || fail "$out: other losses"
    weights_alike one-qwen3_vl_moe/checkpoint-4 $out/checkpoint-4 || fail "$out: other weights"
  done
  lora=(--model qwen3_vl --freeze_vit false --lora_dropout 0.1)
  see 1 1 lora "${lora[@]}"
  see 4 4 lora4 "${lora[@]}" --tensor_model_parallel_size 2 --sequence_parallel_size 2
  see 4 4 lora4-between "${lora[@]}" --tensor_model_parallel_size 2 --sequence_parallel_size 2 --sequence_parallel true
  see 2 2 lora2 "${lora[@]}" --pipeline_model_parallel_size 2
  for out in lora4 lora4-between lora2; do alike lora $out || fail "$out: other losses"; done
  code=0; train 4 cpu bad --model qwen3_vl --dataset seen.jsonl --pipeline_model_parallel_size 4 || code=$?
  [ $code = 2 ] || fail "features behind the first stage: exit code $code"
  says bad.log "what this model sees goes into the first 2"
  ;;
answers)  # two share out the model that answers, or the rows; a mixture's experts too; greedy answers are one process's
  for i in $(seq 1 9); do printf '{"messages":[{"role":"user","content":"question %d %*s"}]}\n' "$i" $((i % 4 * 9)) x; done >asked.jsonl
  "$apus" init --preset tiny-moe --output_dir mixture --torch_dtype float32 --seed 3 2>/dev/null
  ask() {  # ask MODEL OUT FLAGS...
    local model=$1 out=$2
    shift 2
    "$apus" infer --model "$model" --val_dataset asked.jsonl --result_path "$out.jsonl" --device cpu --temperature 0 --max_new_tokens 12 --seed 1 \
      --max_batched_tokens 16 "$@" >"$out.log" 2>&1 || { cat "$out.log" >&2; fail "$out"; }
  }
  ask model one
  ask model halves --tensor_model_parallel_size 2
  says halves.log "2 ranks share out the matrices of the model"
  cmp one.jsonl halves.jsonl || fail "shared matrices: other answers"
  NPROC_PER_NODE=4 ask model copies --tensor_parallel_size 2  # two copies
  cmp one.jsonl copies.jsonl || fail "two copies of two: other answers"
  NPROC_PER_NODE=3 ask model three
  cmp one.jsonl three.jsonl || fail "three copies: other answers"
  [ -z "$(ls | grep unfinished)" ] || fail "a journal is left"
  ask mixture one-moe
  for flags in "--expert_model_parallel_size 2" "--tensor_model_parallel_size 2 --expert_model_parallel_size 2"; do
    ask mixture shared-moe --resume false $flags
    cmp one-moe.jsonl shared-moe.jsonl || fail "a mixture with $flags: other answers"
  done
  train 1 cpu tuned --max_steps 2
  ask model adapted1 --adapters tuned/checkpoint-2
  ask model adapted2 --adapters tuned/checkpoint-2 --tensor_model_parallel_size 2
  cmp adapted1.jsonl adapted2.jsonl || fail "with an adapter: other answers"
  for ranks in 1 2; do
    "$apus" score --model model --dataset rows.jsonl --result_path score$ranks.jsonl --device cpu --tensor_model_parallel_size $ranks >score$ranks.log 2>&1 ||
      { cat score$ranks.log >&2; fail "score"; }
  done
  python3 - score1.jsonl score2.jsonl <<'P'
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in sys.argv[1:])
assert len(a) == len(b) == 25 and all(abs(x["loss"] - y["loss"]) < 1e-5 for x, y in zip(a, b))
P
  code=0; NPROC_PER_NODE=3 "$apus" infer --model model --val_dataset asked.jsonl --device cpu --tensor_model_parallel_size 2 --result_path bad.jsonl >bad.log 2>&1 || code=$?
  [ $code = 2 ] || fail "a number of processes that does not fit: exit code $code"
  says bad.log "needs 2 processes, or a multiple"
  ;;
serve)  # a server over ranks: copies of a model in halves; a lost rank ends it
  ready() { until grep -qs "serving" "$1"; do kill -0 "$2" 2>/dev/null || { cat "$1" >&2; fail "it ended"; }; sleep 0.1; done; }
  address() { sed -n 's/.*serving.* at \(http[^ ]*\).*/\1/p' "$1" | head -1; }
  question='{"model": "model", "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 8}'
  said() {
    curl -s --noproxy '*' -H 'content-type: application/json' -d "$question" "$(address "$1")/chat/completions" |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])'
  }
  start() {  # start LOG FLAGS...: its process is $!
    local log=$1
    shift
    "$apus" deploy --model model --device cpu --port 0 --host 127.0.0.1 "$@" >"$log" 2>&1 &
  }
  start one.log
  alone=$!
  ready one.log $alone
  start four.log --tensor_model_parallel_size 2 --data_parallel_size 2
  four=$!
  ready four.log $four
  expected=$(said one.log)
  for i in 1 2 3; do [ "$(said four.log)" = "$expected" ] || { cat one.log four.log >&2; fail "another answer"; }; done
  kill -TERM $alone $four
  wait $alone || { cat one.log >&2; fail "one process: exit code $?"; }
  code=0; wait $four || code=$?
  [ $code = 0 ] || { cat four.log >&2; fail "stopped: exit code $code"; }
  start lost.log --tensor_model_parallel_size 2
  lost=$!
  ready lost.log $lost
  [ "$(said lost.log)" = "$expected" ] || { cat lost.log >&2; fail "another answer"; }
  kill -9 "$(pgrep -P $lost | tail -1)"
  code=0; wait $lost || code=$?
  [ $code = 137 ] || { cat lost.log >&2; fail "a lost rank: exit code $code"; }
  says lost.log "rank 1 was ended by signal 9"
  ;;
matrices)  # optimizers that look at whole matrices, each of which is one rank's with zero1 and zero2
  for kind in muon adafactor galore; do
    case $kind in
      muon) full=(--optimizer muon) ;;
      adafactor) full=(--optim adafactor) ;;
      *) full=(--optim galore_adamw --optim_args rank=4,update_proj_gap=2) ;;
    esac
    full+=(--tuner_type full --max_steps 4 --save_steps 2)
    train 1 cpu $kind-one "${full[@]}" || { cat $kind-one.log >&2; fail "$kind on one"; }
    for mesh in "2 zero1" "2 zero2" "3 zero1"; do
      read -r ranks stage <<<"$mesh"
      out=$kind-$ranks-$stage
      train "$ranks" cpu "$out" "${full[@]}" --deepspeed "$stage" || { cat "$out.log" >&2; fail "$out"; }
      alike $kind-one "$out" || fail "$out: other losses"
      weights_alike $kind-one/checkpoint-4 "$out/checkpoint-4" || fail "$out: other weights"
    done
    # A checkpoint goes on with other ranks, whose matrices are others.
    for ranks in 1 3; do
      train $ranks cpu $kind-on$ranks "${full[@]}" --deepspeed zero1 --resume_from_checkpoint $kind-2-zero1/checkpoint-2 ||
        { cat $kind-on$ranks.log >&2; fail "$kind goes on with $ranks"; }
      alike $kind-2-zero1 $kind-on$ranks 2 || fail "$kind goes on with $ranks: other losses"
      weights_alike $kind-one/checkpoint-4 $kind-on$ranks/checkpoint-4 || fail "$kind goes on with $ranks: other weights"
    done
  done
  code=0; train 2 cpu bad --tuner_type full --optimizer muon --deepspeed zero3 || code=$?
  [ $code = 2 ] || fail "zero3: exit code $code"
  says bad.log "zero1 or zero2 alone, with which each matrix is one rank's"
  ;;
hang)  # a rank of a training run is stopped: one report says what each waits in, and for whom all do
  NPROC_PER_NODE=3 "$apus" sft --model model --dataset rows.jsonl --device cpu --output_dir out --add_version false --torch_dtype float32 \
    --logging_steps 1 --max_steps 100000 --save_strategy no --ddp_timeout 2 >out.log 2>&1 &
  shell=$!
  training out.log $shell
  kill -STOP "$(pgrep -P $shell | sed -n 2p)"
  code=0; wait $shell || code=$?
  [ $code = 6 ] || { cat out.log >&2; fail "exit code $code"; }
  says out.log "rank 1: silent: stopped, or cut off, at step [0-9]+"
  says out.log "ranks? 0.*: waiting in [a-z_]+ [0-9]+ of '[a-z]+', .*at step [0-9]+"
  says out.log "in the end all wait for rank 1"
  "$apus" doctor --explain out.log >explained 2>&1 || true
  says explained "a rank did not come to a collective in time"
  ;;
npu)  # the same over the simulated NPU's library
  train 2 cpu cpu --max_steps 4
  LD_LIBRARY_PATH=$sim/lib train 2 npu npu --max_steps 4 || { cat npu.log >&2; fail "npu"; }
  says npu.log "rank 0 of 2 on npu:0"
  alike cpu npu || fail "other losses on the NPU"
  ;;
restarts)  # a rank is killed: the run goes on by itself, and ends as one that nobody disturbed
  train 2 cpu whole --num_train_epochs 8 --save_steps 2 || { cat whole.log >&2; fail "whole"; }
  train 2 cpu out --num_train_epochs 8 --save_steps 2 --max_restarts 2 &
  shell=$!
  until [ -d out/checkpoint-4 ]; do kill -0 $shell 2>/dev/null || { cat out.log >&2; fail "it ended"; }; sleep 0.02; done
  kill -9 "$(pgrep -P "$(pgrep -P $shell -f "apus sft")" | tail -1)"
  wait $shell || { cat out.log >&2; fail "the run did not go on"; }
  says out.log "the run is started again .--max_restarts: 1 more times"
  last=$(basename "$(ls -d whole/checkpoint-* | sort -V | tail -1)")
  cmp "whole/$last/adapter_model.safetensors" "out/$last/adapter_model.safetensors" || fail "it ends elsewhere"
  code=0
  NPROC_PER_NODE=2 "$apus" sft --model model --dataset none.jsonl --output_dir wrong --max_restarts 2 >wrong.log 2>&1 || code=$?
  [ $code != 0 ] && ! grep -q "started again" wrong.log || { cat wrong.log >&2; fail "a mistake is no loss"; }
  ;;
kill)  # one rank is killed: told by name, nobody stays
  train 2 cpu out --max_steps 100000 --save_strategy no &
  shell=$!
  training out.log $shell
  launcher=$(pgrep -P $shell -f "apus sft") victim=$(pgrep -P "$launcher" | tail -1) other=$(pgrep -P "$launcher" | head -1)
  kill -9 "$victim"
  code=0; wait $shell || code=$?
  [ $code = 137 ] || fail "exit code $code"
  says out.log "rank 1 was ended by signal 9"
  if kill -0 "$other" 2>/dev/null; then fail "rank 0 is left behind"; fi
  ;;
stop)  # Ctrl-C, SIGTERM, SIGUSR1: all ranks stop together, with a checkpoint
  for signal in TERM USR1; do
    train 2 cpu out$signal --max_steps 100000 --save_strategy no &
    shell=$!
    training out$signal.log $shell
    kill -$signal "$(pgrep -P $shell -f 'apus sft')"
    code=0; wait $shell || code=$?
    [ $code = $((128 + $(kill -l $signal))) ] || fail "$signal: exit code $code"
    says out$signal.log "Saving model checkpoint"
  done
  ;;
machines)  # two launchers, as on two machines: a stop of one, folders that they do not share, names, variables of pods
  node() {  # node RANK OUT FLAGS...
    local rank=$1 out=$2
    shift 2
    # $within runs it where other files lie under the same paths
    NNODES=2 NODE_RANK=$rank NPROC_PER_NODE=1 MASTER_ADDR=${address:-127.0.0.1} MASTER_PORT=$port ${within:-} "$apus" sft --model model \
      --dataset rows.jsonl --device cpu --output_dir "$out" --add_version false --torch_dtype float32 --logging_steps 1 \
      --gradient_accumulation_steps 2 "$@" >"$out.$rank.log" 2>&1
  }
  both() {  # both CODE OUT FLAGS...: each ends with this code
    local expected=$1 out=$2 codes=""
    shift 2
    port=$((20000 + RANDOM % 20000))
    node 0 "$out" "$@" & local first=$!
    within=${elsewhere:-} node 1 "$out" "$@" & local second=$!
    for pid in $first $second; do code=0; wait $pid || code=$?; codes="$codes $code"; done
    [ "$codes" = " $expected $expected" ] || { cat "$out".?.log >&2; fail "$out: exit codes$codes"; }
  }
  # One is signalled: on the other it is no failure either.
  port=$((20000 + RANDOM % 20000))
  node 0 stopped --max_steps 100000 --save_strategy no & first=$!
  node 1 stopped --max_steps 100000 --save_strategy no & second=$!
  training stopped.0.log $first
  kill -TERM "$(pgrep -P $first -f 'apus sft')"
  for pid in $first $second; do code=0; wait $pid || code=$?; [ $code = 143 ] || fail "stopped: exit code $code"; done
  says stopped.0.log "Saving model checkpoint"
  says stopped.1.log "the ranks of this machine have stopped, as those of another one were asked to"
  if grep -q ERROR stopped.1.log; then cat stopped.1.log >&2; fail "a clean stop is told as an error"; fi
  # The second one has another disk under the same path.
  if unshare -rm true 2>/dev/null; then
    mkdir apart
    printf '#!/bin/sh\nexec unshare -rm sh -c "mount -t tmpfs none %s/apart && exec \\"\\$@\\"" sh "$@"\n' "$PWD" >apart.sh
    chmod +x apart.sh
    export elsewhere=$PWD/apart.sh
    both 2 apart/zero3 --deepspeed zero3 --max_steps 2 --ddp_timeout 6
    says apart/zero3.0.log "is not seen by rank 1 on .*With --deepspeed zero3 each rank writes its part of a checkpoint"
    both 0 apart/whole --max_steps 2
    elsewhere=""
    [ -f apart/whole/checkpoint-2/adapter_model.safetensors ] || fail "the first rank writes alone, and has not"
  fi
  # A name that nobody knows, and pods that would each train alone.
  address=no-such-machine.invalid both 6 nowhere --max_steps 2
  says nowhere.1.log "'no-such-machine.invalid' .MASTER_ADDR. does not resolve on this machine"
  code=0; RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 train 2 cpu pods --max_steps 2 || code=$?
  [ $code = 2 ] || fail "pods: exit code $code"
  says pods.log "RANK=1 of WORLD_SIZE=2 .*without NNODES would let each train alone: set NNODES"
  ;;
nan)  # one row of one rank has an infinite loss: both leave the update out, and go on as one process does
  printf '{"messages":[{"role":"user","content":"question"},{"role":"assistant","content":"too heavy","loss_scale":1e38}]}\n' >>rows.jsonl
  for ranks in 1 2; do
    train $ranks cpu nan$ranks --num_train_epochs 2 --save_strategy no || { cat nan$ranks.log >&2; fail "$ranks ranks"; }
    says nan$ranks.log "the loss is not finite"
    [ "$(grep -c "the loss is not finite" nan$ranks.log)" = 2 ] || fail "one update in each of two epochs was to be left out"
  done
  train 2 cpu held --num_train_epochs 1 --save_strategy no --quant_method bnb --quant_bits 4 --deepspeed zero3 || { cat held.log >&2; fail "quantised weights"; }
  says held.log "the loss is not finite, though the final hidden states are"
  python3 - nan1 nan2 <<'P'
import json, math, sys
runs = [[json.loads(line) for line in open(d + "/logging.jsonl")][:-1] for d in sys.argv[1:]]
runs = [[row for row in run if "loss" in row or "eval_loss" in row] for run in runs]
assert len(runs[0]) == len(runs[1]) >= 8, runs
left_out = 0
for a, b in zip(*runs):
    x, y = (row.get("loss", row.get("eval_loss")) for row in (a, b))
    bad = [not isinstance(v, (int, float)) or not math.isfinite(v) or v > 1e30 for v in (x, y)]
    assert bad[0] == bad[1], (a, b)  # the same updates on one and on two ranks
    left_out += bad[0]
    assert bad[0] or abs(x - y) < 2e-5, (a, b)  # and the same parameters after them
assert left_out == 2, runs
P
  ;;
silent)  # a stopped rank, before and while the ranks talk: named within the limit, nobody stays
  export APUS_TEST_RUN=$$-silent
  rank_of() {  # rank_of RANK: its process, of this test's run
    local pid
    for pid in $(pgrep -f "apus comm-check"); do
      tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -cxE "APUS_TEST_RUN=$APUS_TEST_RUN|RANK=$1" | grep -qx 2 && echo "$pid"
    done
    return 0
  }
  stop_rank() {  # stop_rank SHELL RANK SOCKETS: as soon as it has so many connections
    local pid
    until pid=$(rank_of "$2") && [ -n "$pid" ] && [ "$(find "/proc/$pid/fd" -lname 'socket:*' 2>/dev/null | wc -l)" -ge "$3" ]; do
      kill -0 "$1" 2>/dev/null || fail "it ended before rank $2 could be stopped"
      sleep 0.05
    done
    kill -STOP "$pid"
  }
  "$apus" doctor --comm true --device cpu --comm_ranks 3 --comm_timeout 3 --trial false >doctor.log 2>&1 &
  shell=$!
  stop_rank $shell 1 0
  code=0; wait $shell || code=$?
  [ $code = 5 ] || { cat doctor.log >&2; fail "doctor: exit code $code"; }
  tr -s ' \n' ' ' <doctor.log >doctor.line
  says doctor.line "FAIL communication .*rank 1 has said nothing all the while: its process [0-9]+ is stopped"
  NPROC_PER_NODE=3 "$apus" comm-check --device cpu --repeats 1000 --ddp_timeout 3 >check.log 2>&1 &
  shell=$!
  stop_rank $shell 1 5  # the store and two communicators
  code=0; wait $shell || code=$?
  [ $code = 6 ] || { cat check.log >&2; fail "comm-check: exit code $code"; }
  says check.log "rank 1 has said nothing all the while: its process [0-9]+ is stopped"
  for rank in 0 1 2; do [ -z "$(rank_of $rank)" ] || fail "rank $rank is left behind"; done
  ;;
*) fail "no case $case" ;;
esac
