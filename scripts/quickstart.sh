#!/usr/bin/env bash
# quickstart.sh: from a fresh Debian 12 machine to a worker that drafts for a client.
#
# usage: scripts/quickstart.sh
#
# Installs missing packages, builds four tools, writes a small synthetic checkpoint, starts
# dspark-serve on a free loopback port with the best backend present, runs the client
# dspark-selftest against it, shows its table, computes the digest of the drafts and stops the
# worker. No GPU is needed. Everything it writes lies under build/; the checkpoint and the worker
# are gone afterwards. Exit codes: 0 done, 1 a check failed, 2 usage, 3 environment.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case "${1-}" in
  "") ;;
  -h | --help) print_help "$0"; exit 0 ;;
  *) fail 2 "unknown argument '$1'; see --help" ;;
esac

readonly bin=$repo_root/build/dev/bin
readonly start_limit_s=60 client_limit_s=120 stop_limit_s=20
worker_pid=
scratch=

worker_runs() { [[ -n $worker_pid ]] && kill -0 "$worker_pid" 2>/dev/null; }

# wait_until SECONDS COMMAND...: polls ten times a second; fails when the time is up.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= deadline)); then return 1; fi
    sleep 0.1
  done
}
worker_is_gone() { ! worker_runs; }

# Runs on every way out, also after Ctrl-C: no worker and no scratch folder stay behind.
clean_up() {
  if worker_runs; then
    kill -TERM "$worker_pid" 2>/dev/null || true
    wait_until 5 worker_is_gone || kill -KILL "$worker_pid" 2>/dev/null || true
  fi
  if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

worker_has_decided() { grep -q 'listening on' "$scratch/worker.log" 2>/dev/null || ! worker_runs; }

# Starts the worker and waits until it listens; the log shows one line per phase of its start.
start_worker() {
  # Port 0: the system picks a free one and the worker's last line says which.
  "$bin/dspark-serve" --model "$scratch/model" --listen 127.0.0.1:0 --backend auto --admin off \
    >"$scratch/worker.log" 2>&1 </dev/null &
  worker_pid=$!
  wait_until "$start_limit_s" worker_has_decided ||
    { cat "$scratch/worker.log" >&2
      fail 1 "the worker did not listen within $start_limit_s s"; }
  sed 's/^/    /' "$scratch/worker.log"
  worker_runs || fail 1 "the worker ended while starting; its output is above"
  address=$(sed -n 's/.*listening on \([^ ]*\).*/\1/p' "$scratch/worker.log" | tail -n 1)
  if [[ -z $address ]]; then fail 1 "the worker did not say where it listens"; fi
}

# SIGTERM lets the worker finish what it has begun; anything but a clean exit is a failure.
stop_worker() {
  kill -TERM "$worker_pid"
  wait_until "$stop_limit_s" worker_is_gone ||
    fail 1 "the worker ignored SIGTERM for $stop_limit_s s"
  local code=0
  wait "$worker_pid" || code=$?
  worker_pid=
  case $code in
    0 | 143) ;;
    *)
      cat "$scratch/worker.log" >&2
      fail 1 "the worker ended with exit code $code after SIGTERM"
      ;;
  esac
}

say "[1/6] packages"
"$repo_root/scripts/setup.sh"

say "[2/6] build (preset dev; a first build takes minutes; progress is in build/logs/build-dev.log)"
configure_and_build dev dspark-pack dspark-serve dspark-selftest tp2-parity

say "[3/6] synthetic checkpoint: shape tiny, seed 1"
mkdir -p "$repo_root/build/quickstart"
scratch=$(mktemp -d "$repo_root/build/quickstart/run.XXXXXX")
"$bin/dspark-pack" synth --shape tiny --seed 1 --out "$scratch/model"

say "[4/6] worker: dspark-serve --model DIR --listen 127.0.0.1:0 --backend auto"
start_worker

say "[5/6] client: dspark-selftest contract --server $address --model DIR"
timeout "$client_limit_s" \
  "$bin/dspark-selftest" contract --server "$address" --model "$scratch/model" ||
  fail 1 "the client's checks failed or took more than $client_limit_s s"
"$bin/tp2-parity" self --model "$scratch/model" --modes one-card --rounds 8 --seed 1 \
  --backend auto ||
  fail 1 "drafts differ between two runs of the same rounds"

say "[6/6] stop"
stop_worker
say "OK: the worker drafted for a client and stopped cleanly, $SECONDS s; next: scripts/test.sh"
