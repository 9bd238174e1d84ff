#!/usr/bin/env bash
# gpu_qualify.sh: is this card one set of bits with the CPU, and how fast is it? Runs inside an
# unpacked bundle (scripts/bundle.sh); needs no toolchain. Changes no setting of the card.
#
# usage: ./gpu_qualify.sh [--out DIR] [--only PART[,PART...]] [--full-size DIR]
#   --out DIR        new folder for results; default ./qualify
#   --only PARTS     tests, lifecycle, bits, sanitizers, full-bits, benches, pair-benches, serve,
#                    owned; default all of them
#   --full-size DIR  full-size checkpoint for the last five; made (5.8 GB in --out's file system)
#                    and removed without it
#
# Writes JSON only, to be committed as it is: qualify.json (every check), machine.json,
# gpu_tests.json, bits.json and one file per bench; the whole output of each check is in logs/.
# A skipped GPU test is a failure here. compute-sanitizer is used when it is on PATH, the tests of
# a pair when there are two cards and the bundle has them. `serve` is a worker on the card and a
# client on loopback: the contract, and what a STEP over TCP costs beyond its engine. `owned` is the
# bench of the pair under `run-owned pair`: with a permit of this script's own, once to its end and
# once until the permit is withdrawn; log, telemetry and summary with the link counters are owned_*.
# Exit codes: 0 qualified, 1 a check failed, 2 usage, 3 no usable card.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$PWD/qualify
parts=tests,lifecycle,bits,sanitizers,full-bits,benches,pair-benches,serve,owned
full_size=

usage_error() {
  echo "gpu_qualify.sh: error: $1" >&2
  exit 2
}
while (($# > 0)); do
  case $1 in
    --out | --only | --full-size)
      if (($# < 2)); then usage_error "$1 needs a value"; fi
      case $1 in
        --out) out=$2 ;;
        --only) parts=$2 ;;
        --full-size) full_size=$(cd "$2" && pwd) || usage_error "no folder '$2'" ;;
      esac
      shift
      ;;
    -h | --help)
      sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) usage_error "unknown argument '$1'; see --help" ;;
  esac
  shift
done
for part in ${parts//,/ }; do
  case $part in
    tests | lifecycle | bits | sanitizers | full-bits | benches | pair-benches | serve | owned) ;;
    *) usage_error "unknown part '$part'; see --help" ;;
  esac
done
if [[ -e $out/qualify.json ]]; then usage_error "$out holds an earlier qualification"; fi
mkdir -p "$out/logs"
out=$(cd "$out" && pwd)
export LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$here"
failures=0
checks=()     # JSON objects
bits=()       # JSON objects
suites=()     # JSON objects
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)

wants() { [[ ,$parts, == *,$1,* ]]; }
# json_list FILE SCHEMA KEY OBJECT...
json_list() {
  local file=$1 schema=$2 key=$3 separator=
  shift 3
  {
    printf '{"schema": "%s", "%s": [' "$schema" "$key"
    for object in "$@"; do
      printf '%s\n  %s' "$separator" "$object"
      separator=,
    done
    printf '\n]}\n'
  } >"$file"
}
note() {
  printf '%-4s  %-22s %4d s\n' "$2" "$1" "$3"
  checks+=("{\"check\": \"$1\", \"verdict\": \"${2,,}\", \"seconds\": $3}")
}

# check NAME COMMAND...: its output goes to logs/NAME.log; one line says how it ended.
check() {
  local name=$1 start=$SECONDS verdict=PASS
  shift
  "$@" >"$out/logs/$name.log" 2>&1 || verdict=FAIL
  note "$name" "$verdict" $((SECONDS - start))
  if [[ $verdict == FAIL ]]; then
    tail -n 15 "$out/logs/$name.log"
    failures=$((failures + 1))
  fi
}
# Counts of a GoogleTest log into gpu_tests.json's list.
count_tests() {
  local log=$out/logs/$1.log ran passed skipped failed
  ran=$(sed -n 's/^\[==========\] \([0-9]*\) tests\{0,1\} from .* ran.*/\1/p' "$log")
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log")
  failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log")
  suites+=("{\"suite\": \"$1\", \"ran\": ${ran:-0}, \"passed\": ${passed:-0}, \"skipped\":\
 ${skipped:-0}, \"failed\": ${failed:-0}}")
}
without_skips() {
  local text
  text=$("$@" 2>&1) || { printf '%s\n' "$text"; return 1; }
  printf '%s\n' "$text"
  [[ $text != *SKIPPED* ]]
}
# gpu_suite NAME: all tests of a binary, none skipped.
gpu_suite() {
  check "$1" without_skips "./$1"
  count_tests "$1"
}
digest_of() { ./tp2-parity self "$@" | tee /dev/stderr | awk 'NF == 3 {print $2; exit}'; }
# same_bits WHAT MODEL ARGUMENT...: the CPU's digest of a run, then CUDA's in every mode that the
# machine has cards for, with graphs and eager.
same_bits() {
  local what=$1 model=$2 digest equal=true graphs
  shift 2
  digest=$(digest_of --backend cpu --model "$model" "$@")
  for graphs in "" --eager; do
    # shellcheck disable=SC2086  # no argument when empty
    ./tp2-parity self --backend cuda --model "$model" "$@" --modes "$modes" \
      --digest "$digest" $graphs || equal=false
  done
  printf '{"run": "%s", "arguments": "%s", "cpu_digest": "%s", ' "$what" "$*" "$digest" \
    >"$out/logs/$what.json"
  printf '"cuda_modes": ["%s"], "graphs_and_eager": true, "is_equal": %s}' \
    "${modes//,/\", \"}" "$equal" >>"$out/logs/$what.json"
  [[ $equal == true && -n $digest ]]
}
# two_hundred_rounds MODEL: one card and the pair, the cards in both orders.
two_hundred_rounds() {
  local digest
  digest=$(digest_of --backend cuda --model "$1" --rounds 200)
  ./tp2-parity self --backend cuda --model "$1" --rounds 200 --modes pair --digest "$digest" &&
    ./tp2-parity self --backend cuda --model "$1" --rounds 200 --modes pair --digest "$digest" \
      --gpu "${uuids[1]},${uuids[0]}"
}
# audits MODEL: the replicated state of a running pair; a planted bit must be found.
audits() {
  local code=0
  ./tp2-parity audit --backend cuda --model "$1" --mode pair --rounds 40 --every 4 || return 1
  ./tp2-parity audit --backend cuda --model "$1" --mode pair --rounds 8 --plant "ring 1" || code=$?
  ((code == 1))
}
check_bits() {
  check "bits_$1" same_bits "$@"
  if [[ -s $out/logs/$1.json ]]; then bits+=("$(cat "$out/logs/$1.json")"); fi
}
sanitize() {
  TP2_RED_ZONES=off compute-sanitizer --tool "$1" --error-exitcode 1 ./gpu_test --gtest_brief=1 \
    --gtest_filter='Shapes/*tiny_2:Shapes/*tiny_v4_1:Widths/*/2'
}
# bench NAME ARGUMENT...: a result of tp2-bench; noise and throttling are failures.
bench() {
  local name=$1
  shift
  check "$name" ./tp2-bench "$@" --backend cuda --model "$full_size" --json "$out/$name.json"
  sed 's/^/      /' "$out/logs/$name.log"
}
# served COMMAND ARGUMENT...: dspark-selftest against a worker on the first card, started for it.
served() {
  local log=$out/logs/worker.log pid port="" code=0
  ./dspark-serve --backend cuda --model "$full_size" --listen 127.0.0.1:0 --admin off \
    >"$log" 2>&1 &
  pid=$!
  for ((tenth = 0; tenth < 600; ++tenth)); do
    port=$(sed -n 's/.* listening on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$log")
    if [[ -n $port ]] || ! kill -0 $pid 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [[ -n $port ]]; then
    ./dspark-selftest "$@" --backend cuda --model "$full_size" --server "127.0.0.1:$port" || code=$?
  else
    code=1
  fi
  kill $pid 2>/dev/null || true
  wait $pid || code=$?
  if ((code != 0)); then tail -n 5 "$log"; fi
  return $code
}
# owned NAME EXPECTED_CODE VERDICT COMMAND...: the command on the first two cards, while
# $out/PAIR_OK says so. The locks lie with those of the machine's other lanes where they can.
owned() {
  local name=$1 expected=$2 verdict=$3 code=0 locks=/run/lock
  shift 3
  if [[ ! -w $locks ]]; then
    locks=$out/logs/locks
    mkdir -p "$locks"
  fi
  ./run-owned pair --gpus "${uuids[0]},${uuids[1]}" --permit "$out/PAIR_OK" --lock-dir "$locks" \
    --log "$out/$name.log" --require-telemetry --cap-ms 300000 --progress never -- "$@" || code=$?
  [[ $code == "$expected" ]] && grep -q "\"verdict\": \"$verdict\"" "$out/$name.log.summary.json"
}
# withdrawn NAME COMMAND...: as owned, with another owner in the permit after a few seconds.
withdrawn() {
  local name=$1 pid code=0
  shift
  owned "$name" 123 permit_withdrawn "$@" &
  pid=$!
  for ((tenth = 0; tenth < 300; ++tenth)); do
    if grep -qs 'job started' "$out/$name.log"; then break; fi
    sleep 0.1
  done
  sleep 3
  echo owner=SOMEBODY-ELSE >"$out/PAIR_OK.new"
  mv "$out/PAIR_OK.new" "$out/PAIR_OK"
  wait $pid || code=$?
  return $code
}
# write_machine: cards and processor as the driver and the kernel name them.
write_machine() {
  local fields=name,uuid,driver_version,pci.bus_id,memory.total,power.limit,power.draw
  fields+=,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active
  local cards=() line key value object separator
  uuids=()
  while IFS= read -r line; do
    object="{"
    separator=
    for key in ${fields//,/ }; do
      value=${line%%, *}
      line=${line#*, }
      if [[ $key == uuid ]]; then uuids+=("$value"); fi
      object+="$separator\"${key//./_}\": \"$value\""
      separator=", "
    done
    cards+=("$object}")
  done < <(nvidia-smi --format=csv,noheader --query-gpu="$fields")
  card_count=${#cards[@]}
  cards+=("{\"cpu\": \"$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)\",\
 \"threads\": $(nproc), \"kernel\": \"$(uname -r)\"}")
  json_list "$out/machine.json" tp2-machine/1 machine "${cards[@]}"
}

nvidia-smi >"$out/logs/nvidia-smi.log" 2>&1 || {
  echo "gpu_qualify.sh: error: no usable GPU: nvidia-smi failed ($out/logs/nvidia-smi.log)" >&2
  exit 3
}
card_count=0
write_machine
modes=one-card,emulated
if ((card_count >= 2)); then modes+=,pair; fi
if wants tests; then
  check cpu_math ./math_test --gtest_brief=1
  check cpu_exl3 ./exl3_test --gtest_brief=1
  gpu_suite gpu_test
  gpu_suite drafter_gpu_test
  gpu_suite drafter_one_card_pair_test
  gpu_suite collectives_gpu_test
  if ((card_count < 2)); then
    echo "----  one card: no tests of a pair"
  else
    gpu_suite pair_test
    gpu_suite drafter_pair_test
  fi
fi
if wants lifecycle; then
  if ((card_count < 2)); then
    check lifecycle_one_card ./p2p-lifecycle --full --single-card \
      --json "$out/lifecycle_one_card.json"
  else
    check probes ./p2p-lifecycle probe --json "$out/probes.json"
    check lifecycle ./p2p-lifecycle --full --cycles 5 --with-model golden/v41-tiny \
      --json "$out/lifecycle.json"
    check lifecycle_swapped ./p2p-lifecycle --quick --case lifecycle --swapped --cycles 5 \
      --json "$out/lifecycle_swapped.json"
  fi
fi
if wants bits; then
  for shape in tiny medium; do
    ./dspark-pack synth --shape $shape --out "$out/$shape" >>"$out/logs/synth.log"
  done
  for model in golden/v41-tiny "$out/tiny" "$out/medium"; do
    check_bits "$(basename "$model")" "$model" --rounds 41
    check_bits "$(basename "$model")_grid" "$model" --grid
  done
  rm -rf "$out/tiny" "$out/medium"
fi
if wants sanitizers; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck initcheck; do check "$tool" sanitize "$tool"; done
  else
    echo "----  compute-sanitizer is not on PATH: not run"
  fi
fi
made=no
runs_owned=no
if wants owned; then
  if ((card_count < 2)); then
    echo "----  one card: no run-owned pair"
  elif [[ ! -x run-owned ]]; then
    echo "----  run-owned is not in the bundle: not run"
  else
    runs_owned=yes
  fi
fi
needs_model=$runs_owned
if wants full-bits || wants benches || wants pair-benches || wants serve; then
  needs_model=yes
fi
if [[ -z $full_size && $needs_model == yes ]]; then
  full_size=$out/v41-flash
  made=yes
  ./dspark-pack synth --shape v41-flash --out "$full_size" >>"$out/logs/synth.log"
fi
if wants full-bits; then
  check_bits v41-flash "$full_size" --rounds 20
  if ((card_count >= 2)); then
    check bits_200_rounds two_hundred_rounds "$full_size"
    check audits audits "$full_size"
  fi
fi
if wants benches; then
  bench bench_one_card one-card --groups
  bench bench_one_card_cold one-card --cold-l2
  bench bench_solo solo
  bench bench_emulated emulated
  bench bench_insert insert
  bench bench_growth one-card --n-out 1,2,3,4,5
  bench bench_growth_context one-card --requests 1,4 --context 1048575
  bench bench_growth_slots one-card --requests 1,4 --slots 8
fi
if wants pair-benches; then
  if ((card_count < 2)); then
    echo "----  one card: no benches of a pair"
  else
    bench bench_pair pair --groups
    bench bench_pair_step step --pair --requests 1,4
    bench bench_pair_insert insert --pair
    check collectives ./tp2-bench collectives --json "$out/collectives.json"
  fi
fi
if wants serve; then
  check serve_contract served contract
  check serve_latency served latency --rounds 2000 --spin-ms 5 --json "$out/serve_latency.json"
  sed 's/^/      /' "$out/logs/serve_latency.log"
fi
if [[ $runs_owned == yes ]]; then
  echo owner=RX-TP2SAFE >"$out/PAIR_OK"
  pair=(./tp2-bench pair --backend cuda --model "$full_size")
  check owned_pair owned owned_run 0 child "${pair[@]}" --json "$out/owned_pair.json"
  check owned_withdrawn withdrawn owned_withdrawn_run "${pair[@]}" --replays 1000000
  rm -f "$out/PAIR_OK"
fi
if [[ $made == yes ]]; then rm -rf "$full_size"; fi

if ((${#suites[@]} > 0)); then
  json_list "$out/gpu_tests.json" tp2-tests/1 suites "${suites[@]}"
fi
if ((${#bits[@]} > 0)); then json_list "$out/bits.json" tp2-bits/1 runs "${bits[@]}"; fi
checks+=("{\"parts\": \"$parts\", \"started_utc\": \"$started\", \"failed\": $failures,\
 \"tool\": \"$(./tp2-bench --version)\"}")
json_list "$out/qualify.json" tp2-qualify/1 checks "${checks[@]}"
echo "gpu_qualify.sh: $failures failed; results in $out"
((failures == 0))
