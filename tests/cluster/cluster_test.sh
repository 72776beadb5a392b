#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cluster_test.sh APUS EXAMPLES FOLDER CASE: the examples of examples/cluster under the real schedulers, on this machine alone.
#   slurm    a controller and two nodes; a run, a run that its time limit stops and that goes on when it is queued again, a task a node
#   mpirun   two ranks by Open MPI
#   torchrun two ranks, one of which is killed: all start again and go on from the checkpoint
#   ray      a cluster of two nodes: trainer and server are placed, and both are killed: the run goes on from its checkpoint
# Exit code 77: skipped, for want of the scheduler (slurm-wlm with munge and as root; openmpi-bin; torchrun of $APUS_PEERS or PATH;
# Ray of the Python in $APUS_PEERS, or of $APUS_PYTHON).
set -euo pipefail
apus=$1 examples=$2 work=$3 case=$4
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "SKIPPED: $*"; exit 77; }
rm -rf "$work" && mkdir -p "$work" && cd "$work"
work=$PWD
export APUS=$apus OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1
"$apus" init --preset tiny --output_dir model --torch_dtype float32 >made.log 2>&1
for i in $(seq 200); do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i\"}, {\"role\": \"assistant\", \"content\": \"it is $i\"}]}" >>rows.jsonl
done
flags=(--model "$work/model" --dataset "$work/rows.jsonl" --device cpu --report_to none --per_device_train_batch_size 1
       --gradient_accumulation_steps 1 --logging_steps 1)
ended() { [ -d "$1/checkpoint-$2" ] || { tail -n 20 ./*.log slurm-*.out 2>/dev/null >&2 || true; fail "$1 has no checkpoint-$2"; }; }

case $case in
slurm)
  for program in slurmctld slurmd sbatch munge munged; do command -v $program >/dev/null || skip "$program is not here (slurm-wlm, munge)"; done
  [ "$(id -u)" = 0 ] || skip "a Slurm of its own needs root"
  if ! munge -n | unmunge >/dev/null 2>&1; then
    mkdir -p /run/munge && chown munge /run/munge
    [ -f /etc/munge/munge.key ] || mungekey
    su munge -s /bin/sh -c "$(command -v munged)" || skip "munged does not start"
  fi
  host=$(hostname)
  export SLURM_CONF=$work/slurm.conf
  mkdir state
  cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd-%n.log
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=30
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=16818 CPUs=1
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=16819 CPUs=1
PartitionName=main Nodes=n1,n2 Default=YES State=UP
CONF
  stop_slurm() { for file in "$work"/*.pid; do kill "$(cat "$file")" 2>/dev/null || true; done; }
  trap stop_slurm EXIT
  slurmctld && sleep 1 && slurmd -N n1 && slurmd -N n2
  for _ in $(seq 60); do [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break; sleep 1; done
  finished() {  # finished JOB: waits for it
    for _ in $(seq 300); do [ -n "$(squeue -h -j "$1" -o %T 2>/dev/null)" ] || return 0; sleep 1; done
    fail "job $1 does not end"
  }
  job=$(sbatch --parsable --export=ALL --ntasks-per-node=1 --time=5 --signal=TERM@60 "$examples/cluster/slurm.sbatch" \
    "${flags[@]}" --output_dir "$work/plain" --max_steps 6 --save_steps 6)
  finished "$job"
  ended plain 6
  grep -q "rank 0 of 2 on cpu (started by Slurm)" "slurm-$job.out" || fail "two tasks were no two ranks"
  # --signal comes as soon as it may: the ranks stop with a checkpoint, the job is queued again, and goes on to its end.
  job=$(sbatch --parsable --export=ALL --ntasks-per-node=1 --time=2 --signal=TERM@90 "$examples/cluster/slurm.sbatch" \
    "${flags[@]}" --output_dir "$work/stopped" --max_steps 100000 --save_steps 100000)
  for _ in $(seq 120); do ls -d stopped/checkpoint-* >/dev/null 2>&1 && break; sleep 1; done
  ls -d stopped/checkpoint-* >/dev/null 2>&1 || { tail -n 20 "slurm-$job.out" >&2; fail "no checkpoint before the time limit"; }
  for _ in $(seq 20); do scontrol show job "$job" | grep -q "Restarts=1" && break; sleep 1; done
  scontrol show job "$job" | grep -q "Restarts=1" || fail "the job is not queued again"
  scancel "$job"
  job=$(RANKS=1 sbatch --parsable --export=ALL --time=5 "$examples/cluster/slurm_one_task.sbatch" "${flags[@]}" --output_dir "$work/each" \
    --add_version false --max_steps 6 --save_steps 6)
  finished "$job"
  ended each 6
  ;;
mpirun)
  command -v mpirun >/dev/null || skip "mpirun is not here (openmpi-bin)"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  HOSTS=localhost:2 MASTER_PORT=29677 "$examples/cluster/mpirun.sh" "${flags[@]}" --output_dir out --add_version false --max_steps 6 --save_steps 6 \
    >mpirun.log 2>&1 || { cat mpirun.log >&2; fail mpirun; }
  ended out 6
  grep -q "rank 0 of 2 on cpu (started by Open MPI)" mpirun.log || fail "two processes were no two ranks"
  ;;
torchrun)
  [ -z "${APUS_PEERS:-}" ] || PATH=$APUS_PEERS/bin:$PATH
  command -v torchrun >/dev/null || skip "torchrun is not here"
  NPROC_PER_NODE=2 MASTER_PORT=29678 "$examples/cluster/torchrun.sh" "${flags[@]}" --output_dir out --max_steps 60 --save_steps 10 >torchrun.log 2>&1 &
  for _ in $(seq 120); do [ -d out/checkpoint-10 ] && break; sleep 0.5; done
  pkill -9 -n -f "^$apus sft .*--output_dir out" || fail "no rank to kill"
  wait $! || { cat torchrun.log >&2; fail torchrun; }
  ended out 60
  grep -q "goes on\|resum" torchrun.log || { cat torchrun.log >&2; fail "it did not go on from a checkpoint"; }
  ;;
ray)
  export APUS_PYTHON=${APUS_PYTHON:-${APUS_PEERS:+$APUS_PEERS/bin/}python3} RAY_ADDRESS=127.0.0.1:6391
  "$APUS_PYTHON" -c 'import ray' 2>/dev/null || skip "$APUS_PYTHON has no Ray"
  ray() { "$APUS_PYTHON" -c 'import sys; from ray.scripts.scripts import main; sys.argv[0] = "ray"; main()' "$@"; }
  trap 'ray stop --force >/dev/null 2>&1 || true' EXIT
  { ray start --head --port=6391 --num-cpus=1 --disable-usage-stats --include-dashboard=false &&
    (unset RAY_ADDRESS && ray start --address=127.0.0.1:6391 --num-cpus=1 --disable-usage-stats); } >ray.log 2>&1 ||
    { tail -n 20 ray.log >&2; fail "Ray does not start"; }
  MODEL=$work/model ROWS=$work/rows.jsonl OUT=$work/out REWARD="external:python3 $examples/island/reward.py" \
    "$apus" megatron rlhf --use_ray true --config "$examples/cluster/ray.yaml" >run.log 2>&1 &
  for _ in $(seq 240); do [ -d out/checkpoint-5 ] && break; sleep 0.5; done
  pkill -9 -n -f "^$apus (megatron )?rlhf .*--output_dir $work/out" || { tail -n 40 run.log >&2; fail "no trainer to kill"; }
  pkill -9 -n -f "^$apus rollout --model $work/model" || fail "no server to kill"
  wait $! || { tail -n 40 run.log >&2; fail ray; }
  ended out 30
  for said in "train ended" "rollout server .* has ended" "resumed from"; do
    grep -q "$said" run.log || { tail -n 40 run.log >&2; fail "nothing says: $said"; }
  done
  ;;
*) fail "no case $case" ;;
esac
echo "$case: as it should be"
