#!/usr/bin/env bash
# Goal: gpu_qualify.sh passes only when every check does and no GPU test is skipped, and what it
# writes is JSON. Method: the real script in a scratch bundle whose tools print what a case needs.
set -euo pipefail

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
mkdir "$bundle/path"
cp "$source_root/scripts/gpu_qualify.sh" "$bundle/"

tool() {  # tool NAME: its body comes from stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$bundle/$1"
  chmod +x "$bundle/$1"
}
tool path/nvidia-smi <<'TOOL'
if [[ $NO_CARD == yes ]]; then exit 9; fi
if [[ $* != *query-gpu* ]]; then exit 0; fi
for ((card = 0; card < CARDS; ++card)); do
  echo "NVIDIA H200, GPU-$card, 580.159.04, 00:06.0, 143771 MiB, 700.00 W, 80 W, 345 MHz, 3 MHz,\
 1980 MHz, 36, 0x1"
done
TOOL
# The script waits a while for a job to be at work; stand-ins are.
tool path/sleep <<'TOOL'
exec /bin/sleep 0.05
TOOL
for name in math_test exl3_test dspark-pack p2p-lifecycle; do
  tool $name <<'TOOL'
exit 0
TOOL
done
for name in gpu_test drafter_gpu_test drafter_one_card_pair_test drafter_pair_test \
  collectives_gpu_test pair_test; do
  tool $name <<'TOOL'
echo "[==========] 3 tests from 1 test suite ran. (5 ms total)"
echo "[  PASSED  ] $((3 - SKIPPED_TESTS)) tests."
if ((SKIPPED_TESTS > 0)); then echo "[  SKIPPED ] $SKIPPED_TESTS test, listed below:"; fi
TOOL
done
tool tp2-bench <<'TOOL'
if [[ $* == *--version* ]]; then echo "tp2-bench 0.1.0"; fi
if [[ $1 == insert ]]; then exit "$INSERT_CODE"; fi
if [[ $1 == pair ]]; then exit "$PAIR_CODE"; fi
TOOL
# Does what gpu_qualify.sh relies on: the job while the permit lasts, log, summary, exit code.
tool run-owned <<'TOOL'
while [[ $1 != -- ]]; do
  case $1 in
    --gpus) gpus=$2 ;;
    --permit) permit=$2 ;;
    --log) log=$2 ;;
  esac
  shift
done
shift
[[ $gpus == GPU-0,GPU-1 ]] && grep -q RX-TP2SAFE "$permit" || exit 125
echo '# job started' >"$log"
verdict=child code=0
"$@" || code=$?
if [[ $* == *--replays* ]]; then
  until grep -q SOMEBODY "$permit"; do sleep 0.05; done
  verdict=permit_withdrawn code=$WITHDRAWN_CODE
fi
echo "{ \"verdict\": \"$verdict\"}" >"$log.summary.json"
exit $code
TOOL
# A worker that says where it listens, if it gets so far, and drains when it is asked to.
tool dspark-serve <<'TOOL'
if [[ $WORKER_CODE != 0 ]]; then exit "$WORKER_CODE"; fi
trap 'exit "$DRAIN_CODE"' TERM
echo "ready           0.19 ms  listening on 127.0.0.1:40000"
while true; do /bin/sleep 0.05; done
TOOL
tool dspark-selftest <<'TOOL'
[[ $* == *"--server 127.0.0.1:40000"* ]] || exit 2
if [[ $1 == latency ]]; then exit "$LATENCY_CODE"; fi
TOOL
tool tp2-parity <<'TOOL'
if [[ $1 == audit ]]; then
  if [[ $* == *--plant* ]]; then exit "$PLANT_CODE"; fi
  exit 0
fi
digest=abcd
if [[ $* == *cuda*--eager* ]]; then digest=$EAGER_DIGEST; fi
echo "one-card $digest 41"
[[ $* != *--digest* || $digest == abcd ]]
TOOL

parts=all
# expect NAME EXIT_CODE TEXT [VARIABLE=VALUE...]
expect() {
  local code=0 out=$bundle/out selection=()
  if [[ $parts != all ]]; then selection=(--only "$parts"); fi
  rm -rf "$out"
  env PATH="$bundle/path:$PATH" NO_CARD=no CARDS=1 SKIPPED_TESTS=0 INSERT_CODE=0 PAIR_CODE=0 \
    PLANT_CODE=1 WITHDRAWN_CODE=123 WORKER_CODE=0 DRAIN_CODE=0 LATENCY_CODE=0 \
    EAGER_DIGEST=abcd "${@:4}" \
    bash "$bundle/gpu_qualify.sh" --out "$out" "${selection[@]}" >"$bundle/log" 2>&1 || code=$?
  if ((code != $2)) || ! grep -q "$3" "$bundle/log"; then
    echo "$1: expected exit $2 and '$3', got exit $code and:"
    cat "$bundle/log"
    exit 1
  fi
  for file in "$out"/*.json; do
    if [[ -e $file ]]; then python3 -m json.tool "$file" >/dev/null; fi
  done
}
expect "all is well" 0 "0 failed"
grep -q '"ran": 3, "passed": 3, "skipped": 0' "$bundle/out/gpu_tests.json"
grep -q '"run": "medium_grid".*"is_equal": true' "$bundle/out/bits.json"
expect "two cards" 0 "PASS  drafter_pair_test" CARDS=2
grep -q '"cuda_modes": \["one-card", "emulated", "pair"\]' "$bundle/out/bits.json"
grep -q '"check": "owned_withdrawn", "verdict": "pass"' "$bundle/out/qualify.json"
[[ ! -e $bundle/out/PAIR_OK ]]
parts=owned
expect "one card has no pair" 0 "one card: no run-owned pair"
expect "a bench that fails under run-owned" 1 "FAIL  owned_pair" CARDS=2 PAIR_CODE=5
expect "a job that outlives its permit" 1 "FAIL  owned_withdrawn" CARDS=2 WITHDRAWN_CODE=0
parts=serve
expect "a worker that serves" 0 "PASS  serve_latency"
expect "a worker that does not start" 1 "FAIL  serve_contract" WORKER_CODE=3
expect "a worker that does not drain" 1 "FAIL  serve_contract" DRAIN_CODE=4
expect "a client that is not served" 1 "FAIL  serve_latency" LATENCY_CODE=5
parts=all
expect "an audit that finds no planted bit" 1 "FAIL  audits" CARDS=2 PLANT_CODE=0
expect "a skipped GPU test" 1 "FAIL  gpu_test" SKIPPED_TESTS=1
expect "eager bits differ" 1 "FAIL  bits_v41-tiny_grid" EAGER_DIGEST=dcba
grep -q '"is_equal": false' "$bundle/out/bits.json"
expect "a noisy bench" 1 "FAIL  bench_insert" INSERT_CODE=5
expect "no card" 3 "no usable GPU" NO_CARD=yes
echo "gpu_qualify_test.sh: all cases end as they should"
