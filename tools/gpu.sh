#!/bin/bash
# Uses a GPU for half an hour: prepares the data, checks the kernels, traces two
# tasks, and trains the runs of a file until the time is up.
#
#   IMDB=aclImdb_v1.tar.gz CIFAR=cifar-10-python.tar.gz RFC=rfc_citations \
#     tools/gpu.sh MINUTES OUT
#
# Run directories are in the current folder. Everything else is in OUT: logs,
# measurements, and runs.tar with the run directories. The same command resumes,
# also on another machine that OUT was copied to. The exit code is 75 if work is
# left, and 0 if none is.
#
# IMDB, CIFAR, RFC: source files of the data sets (--source of data_prep).
#   Without IMDB or CIFAR they are downloaded; without RFC, runs of
#   retrieval_rfc are left out.
# LRA_RUNS: another file of runs than configs/runs/gpu.toml.
# LRA_REHEARSE=20: every run makes 20 steps of short sequences, and
#   pathfinder_mini replaces pathfinder. For a machine without a GPU.
# PYTHON: the interpreter.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: $0 MINUTES OUT" >&2
  exit 2
fi
minutes=$1
mkdir -p "$2/logs"
out=$(cd "$2" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python}
rehearse=${LRA_REHEARSE:-}
limit=$((minutes * 60))
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

say() {
  printf '[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}

# The changes of every run of a rehearsal.
small=()
if [ -n "$rehearse" ]; then
  small=("train.steps=$rehearse" "train.eval_every=$rehearse"
    train.warmup_steps=1 train.batch_size=4 train.microbatch_size=4
    train.eval_batch_size=100 "train.lengths=()" seq_len=128)
fi

# The file of runs; tasks without data are removed from it below.
runs=$out/runs.toml
{
  for word in "${small[@]}"; do
    word=${word/()/[]}
    echo "set.${word/=/ = }"
  done
  cat "${LRA_RUNS:-$root/configs/runs/gpu.toml}"
} >"$runs"
[ -n "$rehearse" ] && sed -i 's/"pathfinder"/"pathfinder_mini"/' "$runs"
if [ -e "$out/runs.tar" ]; then
  tar -xf "$out/runs.tar" --skip-old-files
fi

# Data, all tasks at the same time.
declare -A preparing=()
# shellcheck disable=SC2329  # the trap calls it
end_preparing() {
  local task
  for task in "${!preparing[@]}"; do
    kill "${preparing[$task]}" 2>/dev/null || true
  done
}
trap end_preparing EXIT

without() {
  say "$1"
  sed -i -E "s/\"$2\",? ?//" "$runs"
}

mapfile -t tasks < <(grep '^tasks' "$runs" | grep -oE '"[a-z0-9_]+"' |
  tr -d '"' | sort -u)
for task in "${tasks[@]}"; do
  source=''
  case $task in
    text*) source=${IMDB:-} ;;
    image*) source=${CIFAR:-} ;;
    retrieval_rfc*)
      source=${RFC:-}
      if [ -z "$source" ]; then
        without "RFC is not set: runs of $task are left out." "$task"
        continue
      fi
      ;;
  esac
  "$python" -m data_prep --task="$task" ${source:+--source="$source"} \
    >"$out/logs/data-$task.log" 2>&1 &
  preparing[$task]=$!
done
say "Preparing ${!preparing[*]}; logs are in $out/logs."

prepared() {
  # Waits for the data of a task; fails if they cannot be prepared.
  local task=$1 code=0
  [ -n "${preparing[$task]:-}" ] || return 0
  while kill -0 "${preparing[$task]}" 2>/dev/null; do
    if ((SECONDS > limit - 60)); then
      say "The time is up while $task is prepared: repeat the command."
      exit 75
    fi
    sleep 1
  done
  wait "${preparing[$task]}" || code=$?
  unset "preparing[$task]"
  if ((code)); then
    without "$task cannot be prepared (see $out/logs/data-$task.log): \
its runs are left out." "$task"
    return 1
  fi
  say "$task is prepared."
}

# Kernels against float64 on the device.
accelerator=$("$python" -c 'from lra.system import machine
print(machine.accelerator())')
if [ -z "$accelerator" ]; then
  say "No accelerator was found: the kernels are not checked."
elif [ -e "$out/onchip.done" ]; then
  say "The kernels were checked before."
else
  say "Checking the kernels on $accelerator, for three minutes at most."
  code=0
  timeout --signal=INT --kill-after=20 180 "$python" -m lra.costs \
    --onchip="$out/onchip.json" --stages=errors >"$out/logs/onchip.log" 2>&1 ||
    code=$?
  if ((code == 0)); then
    touch "$out/onchip.done"
    say "Errors are in $out/onchip.json."
  else
    say "The check is not complete (code $code): the next call resumes it."
  fi
fi

# Traces of two tasks.
first=20 last=30
if [ -n "$rehearse" ]; then
  first=$((rehearse / 2)) last=$rehearse
fi
changed=()
for word in "${small[@]}" "train.steps=$last" "train.eval_every=$last" \
  "train.warmup_steps=1"; do
  changed+=("--config.$word")
done
for task in listops image; do
  target=$out/trace-$task.json
  if [ -e "$target" ] || ! grep -q "\"$task\"" "$runs"; then
    continue
  fi
  prepared "$task" || continue
  rm -rf "$out/scratch/$task"
  train=("$python" "$root/run_lra.py" --norecord --max_minutes=3
    --config="configs/simpletron.py:$task,protocol=nystrom" "${changed[@]}")
  # Only the trace matters, so a failure of the run is ignored.
  "${train[@]}" --workdir="$out/scratch/$task" --profile="$first:$last" \
    >"$out/logs/trace-$task.log" 2>&1 || true
  if "$python" "$root/lra/recipes/trace.py" "$out/scratch/$task/profile" \
    "$target" >>"$out/logs/trace-$task.log" 2>&1; then
    say "The operations of a step of $task are in $target."
  else
    say "$task could not be traced: see $out/logs/trace-$task.log."
  fi
  if [ -n "$accelerator" ] && command -v ncu >/dev/null; then
    timeout --kill-after=10 120 ncu --target-processes all --kill yes \
      --launch-skip 3000 --launch-count 30 --section SpeedOfLight \
      --log-file "$out/ncu-$task.txt" "${train[@]}" \
      --workdir="$out/scratch/ncu-$task" >"$out/logs/ncu-$task.log" 2>&1 ||
      say "ncu failed: see $out/logs/ncu-$task.log."
    say "Kernels of a step of $task are in $out/ncu-$task.txt."
  fi
  rm -rf "$out/scratch"
done

for task in "${tasks[@]}"; do
  prepared "$task" || true
done

# The runs. One minute is kept for packing.
left=$((limit - SECONDS - 60))
((left > 0)) || left=0
say "Training for $((left / 60)) minutes."
"$python" "$root/run_lra.py" runs "$runs" --missing \
  --max_minutes="$(awk "BEGIN {print $left / 60}")" \
  > >(tee -ia "$out/logs/runs.log") 2>&1 &
training=$!
# If the machine is taken away, this script gets a signal and passes it on: the
# run under way then makes a checkpoint.
trap 'kill -TERM "$training" 2>/dev/null || true' TERM INT HUP
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do  # a signal has ended `wait`
  code=0
  wait "$training" || code=$?
done
tar -cf "$out/runs.tar" --exclude=.lock runs
say "Training ended with code $code; its runs are in $out/runs.tar."
exit "$code"
