#!/bin/bash
# Uses a GPU for half an hour: prepares the data, checks the kernels, and trains
# runs until the time is up.
#
#   IMDB=aclImdb_v1.tar.gz CIFAR=cifar-10-python.tar.gz RFC=rfc_citations \
#     tools/gpu.sh MINUTES OUT [RUNS]
#
# RUNS is a file of runs, configs/runs/gpu.toml by default. Run directories and
# records are in OUT, with logs; OUT/runs.tar has what is worth keeping. The same
# command resumes, also on another machine that OUT was copied to. The exit code
# is 75 if work is left.
#
# IMDB, CIFAR, RFC: source files of the data sets; without IMDB or CIFAR they are
# downloaded, without RFC retrieval_rfc is not prepared. PYTHON: the interpreter.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: $0 MINUTES OUT [RUNS]" >&2
  exit 2
fi
limit=$(($1 * 60))
mkdir -p "$2/logs"
out=$(cd "$2" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
runs=$(realpath "${3:-$root/configs/runs/gpu.toml}")
python=${PYTHON:-python}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
cd "$out"

say() {
  printf '[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}

# Data, all tasks at the same time.
declare -A source=([text]=${IMDB:-} [image]=${CIFAR:-} [retrieval_rfc]=${RFC:-})
declare -A preparing=()
for task in listops text image pathfinder retrieval_rfc; do
  [ "$task" != retrieval_rfc ] || [ -n "${RFC:-}" ] || continue
  "$python" "$root/run_lra.py" data --task="$task" \
    ${source[$task]:+--source="${source[$task]}"} \
    >"logs/data-$task.log" 2>&1 &
  preparing[$task]=$!
done
say "Preparing ${!preparing[*]}; logs are in $out/logs."

# Kernels against float64, for three minutes at most.
if [ ! -e onchip.done ]; then
  (cd "$root" && timeout --signal=INT --kill-after=20 180 "$python" -m tools \
    onchip "$out/onchip.json" --stages=errors) >logs/onchip.log 2>&1 &&
    touch onchip.done || say 'The check of the kernels is not complete.'
fi

for task in "${!preparing[@]}"; do
  wait "${preparing[$task]}" ||
    say "$task is not prepared: see logs/data-$task.log."
done

# The runs; one minute is kept for packing. A signal reaches the training, which
# then makes a checkpoint.
left=$((limit - SECONDS - 60))
((left > 0)) || left=0
say "Training for $((left / 60)) minutes."
"$python" "$root/run_lra.py" runs "$runs" --missing --results_dir=results \
  --max_minutes="$(awk "BEGIN {print $left / 60}")" \
  > >(tee -ia logs/runs.log) 2>&1 &
training=$!
trap 'kill -TERM "$training" 2>/dev/null || true' TERM INT HUP
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do  # a signal has ended `wait`
  code=0
  wait "$training" || code=$?
done
tar -cf runs.tar.new --exclude=profile runs results onchip.json 2>/dev/null || true
mv runs.tar.new runs.tar
say "The training ended with code $code; its runs are in $out/runs.tar."
exit "$code"
