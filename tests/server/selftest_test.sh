#!/usr/bin/env bash
# dspark-serve and dspark-selftest as an operator meets them: all checks pass against the same
# checkpoint; against one with a single byte changed they fail and name the digest; SIGTERM ends the
# worker with 0.
#
# usage: selftest_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
readonly bin=$1 golden=$2/tests/golden/v41-tiny
scratch=$(mktemp -d)
worker=
clean_up() {
  if [[ -n $worker ]]; then kill -KILL "$worker" 2>/dev/null || true; fi
  rm -rf "$scratch"
}
trap clean_up EXIT
fail() { echo "FAIL: $*" >&2; cat "$scratch"/*.log >&2; exit 1; }

start_worker() { # MODEL_DIR
  "$bin/dspark-serve" --model "$1" --backend cpu --listen 127.0.0.1:0 --admin off \
    >"$scratch/worker.log" 2>"$scratch/errors.log" </dev/null &
  worker=$!
  for _ in $(seq 300); do
    address=$(sed -n 's/.*listening on //p' "$scratch/worker.log")
    if [[ -n $address ]]; then return; fi
    kill -0 "$worker" 2>/dev/null || fail "the worker ended while starting"
    sleep 0.1
  done
  fail "the worker does not listen"
}
stop_worker() {
  kill -TERM "$worker"
  local code=0
  wait "$worker" || code=$?
  worker=
  [[ $code == 0 ]] || fail "the worker ended with $code after SIGTERM"
}
selftest() { # EXPECTED_CODE ARGUMENTS...
  local expected=$1 code=0
  shift
  "$bin/dspark-selftest" "$@" --server "$address" --model "$golden" --backend cpu \
    >"$scratch/client.log" 2>&1 || code=$?
  [[ $code == "$expected" ]] || fail "dspark-selftest $1 ended with $code, not $expected"
}

start_worker "$golden"
selftest 0 contract --latency-rounds 3 --json "$scratch/result.json"
grep -q '^PASS  rounds-41-bit-identical$' "$scratch/client.log" || fail "no 41 rounds"
grep -q '"verdict": "ok"' "$scratch/result.json" || fail "no verdict in the result file"
selftest 2 contract --latency-rounds 0 --json "$scratch/result.json"  # never overwritten
selftest 0 rounds --rounds 2
stop_worker

cp -r "$golden" "$scratch/changed"
# The last byte of the last tensor.
/usr/bin/python3 - "$scratch/changed/model.safetensors" <<'PYTHON'
import sys
with open(sys.argv[1], 'r+b') as file:
    file.seek(-1, 2)
    byte = file.read(1)[0]
    file.seek(-1, 2)
    file.write(bytes([byte ^ 1]))
PYTHON
start_worker "$scratch/changed"
selftest 1 contract --latency-rounds 0
grep -q '^FAIL  hello-digests-equal  identity digest: local [0-9a-f]*, worker [0-9a-f]*$' \
  "$scratch/client.log" || fail "the digest that differs is not named"
stop_worker
echo "ok"
