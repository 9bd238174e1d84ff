# Sourced by tests of whole tools: one CPU worker on the golden checkpoint, and what it left behind.
# shellcheck shell=bash disable=SC2034,SC2154
# The caller sets `bin`.
scratch=$(mktemp -d)
worker=
listen=127.0.0.1:0
helpers=()  # pids that end with the test
clean_up() {
  if ((${#helpers[@]} > 0)); then kill -KILL "${helpers[@]}" 2>/dev/null || true; fi
  if [[ -n $worker ]]; then kill -KILL "$worker" 2>/dev/null || true; fi
  rm -rf "$scratch"
}
trap clean_up EXIT
fail() { echo "FAIL: $*" >&2; tail -n 50 "$scratch"/*.log >&2; exit 1; }

# start_worker MODEL_DIR ARGUMENTS...: sets `worker` (pid), `address` and, unless off, `admin`. The
# program is `serve`, its stderr goes to `worker_errors`; "closed": it has none.
start_worker() {
  local model=$1
  shift
  : >"$scratch/worker.log"
  local command=("$bin/${serve-dspark-serve}" --model "$model" --backend cpu --listen "$listen"
    --admin 127.0.0.1:0 "$@")
  if [[ ${worker_errors-} == closed ]]; then
    "${command[@]}" >"$scratch/worker.log" 2>&- </dev/null &
  else
    "${command[@]}" >"$scratch/worker.log" 2>"${worker_errors-$scratch/errors.log}" </dev/null &
  fi
  worker=$!
  for _ in $(seq 300); do
    address=$(sed -n 's/^ready .*listening on //p' "$scratch/worker.log")
    admin=$(sed -n 's/^admin .*http:\/\///p' "$scratch/worker.log")
    if [[ -n $address ]]; then return; fi
    kill -0 "$worker" 2>/dev/null || fail "the worker ended while starting"
    sleep 0.1
  done
  fail "the worker does not listen"
}
# stop_worker EXPECTED_CODE [SIGNAL]: signals it and waits.
stop_worker() {
  if [[ -n ${2-TERM} ]]; then kill "-${2-TERM}" "$worker"; fi
  local code=0
  wait "$worker" || code=$?
  worker=
  [[ $code == "$1" ]] || fail "the worker ended with $code, not $1"
}
