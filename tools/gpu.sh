#!/bin/bash
# Uses a GPU for some minutes: trains runs until the time is up, and checks the
# kernels if time is left.
#
#   WHEELS=wheels IMDB=aclImdb_v1.tar.gz CIFAR=cifar-10-python.tar.gz \
#     RFC=rfc_citations tools/gpu.sh MINUTES OUT [RUNS]
#
# RUNS is a file of runs, configs/runs/gpu.toml by default; only data of its
# tasks are prepared. Run directories and records are in OUT, with logs;
# OUT/runs.tar has what is worth keeping. The same command resumes, also on
# another machine that OUT was copied to. The exit code is 75 if work is left.
#
# IMDB, CIFAR, RFC: source files of the data sets; without IMDB or CIFAR they
# are downloaded, without RFC retrieval_rfc is not prepared. WHEELS: a folder of
# packages that the machine lacks; lra/recipes/README.md lists those of a
# machine without internet. PYTHON: the interpreter.
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
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
lra=("$python" "$root/run_lra.py")
declare -A source=([text]=${IMDB:-} [image]=${CIFAR:-} [retrieval_rfc]=${RFC:-})
for task in "${!source[@]}"; do
  source[$task]=${source[$task]:+$(realpath "${source[$task]}")}
done

say() {
  printf '[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}

# Waits for a command. A signal reaches it; in training it makes a checkpoint.
child='' stopped=''
trap 'stopped=1; kill -TERM "$child" 2>/dev/null || true' TERM INT HUP
run() {
  "$@" &
  child=$!
  code=0
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do  # a signal has ended `wait`
    code=0
    wait "$child" || code=$?
  done
  child=
}

# A finished run needs no checkpoint to resume from.
pack() {
  grep -ls '"status": "ok"' runs/*/*/*/result.json |
    sed 's|result.json$|checkpoints/last|' >logs/finished || true
  tar -cf runs.tar.new --exclude=profile --exclude-from=logs/finished runs \
    results onchip.json 2>/dev/null || true
  mv runs.tar.new runs.tar
}

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
if [ -n "${WHEELS:-}" ]; then
  packages=$out/packages
  if [ ! -d "$packages" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile \
      --upgrade --target "$packages.new" "$WHEELS"/*.whl
    mv "$packages.new" "$packages"
    say "The packages of $WHEELS are in $packages."
  fi
  export PYTHONPATH="$PYTHONPATH:$packages"
fi
cd "$out"

# The data of all tasks at the same time. Training does not wait: a run prepares
# its own data, or waits for those that are being prepared here.
"${lra[@]}" runs "$runs" --missing --results_dir=results --plan \
  --max_minutes="$1" | tee logs/plan.log
for task in $(sed -n 's/.* [^ :]*:\([a-z0-9_]*\)[^:]* seed=.*/\1/p' \
              logs/plan.log | awk '!seen[$0]++'); do
  from=${source[${task%_mini}]:-}
  niceness=0
  if [ "$task" = pathfinder ]; then niceness=10; fi  # it uses all cores
  nice -n $niceness "${lra[@]}" data --task="$task" ${from:+--source="$from"} \
    >"logs/data-$task.log" 2>&1 &
done

# The runs; half a minute is kept for their checkpoints and for packing.
[ -z "$stopped" ] || exit 75
left=$((limit - SECONDS - 30))
((left > 0)) || left=0
say "Training for $((left / 60)):$((left % 60 / 10))$((left % 10)) minutes."
run "${lra[@]}" runs "$runs" --missing --results_dir=results \
  --max_minutes="$(awk "BEGIN {print $left / 60}")" \
  > >(tee -ia logs/runs.log) 2>&1
pack
say "The training ended with code $code; its runs are in $out/runs.tar."

# Errors of the kernels against float64, only if no run needs the time.
trained=$code
left=$((limit - SECONDS - 15))
if ((trained != 75 && left > 0)) && [ -z "$stopped" ] &&
    [ ! -e onchip.done ]; then
  cd "$root"
  run timeout --signal=INT --kill-after=10 $left "$python" -m tools onchip \
    "$out/onchip.json" --stages=errors >"$out/logs/onchip.log" 2>&1
  cd "$out"
  if ((code == 0)); then touch onchip.done; fi
  pack
  say "The check of the kernels ended with code $code."
fi
exit "$trained"
