#!/usr/bin/env bash
# gpu_qualify.sh: is this card one set of bits with the CPU, and how fast is it? Runs inside an
# unpacked bundle (scripts/bundle.sh); needs no toolchain. Changes no setting of the card.
#
# usage: ./gpu_qualify.sh [--out DIR] [--quick]
#   --out DIR   folder for logs and results; default ./qualify
#   --quick     no full-size checkpoint (5.8 GB in --out's file system), no timing
#
# A skipped GPU test is a failure here. compute-sanitizer is used when it is on PATH.
# Exit codes: 0 qualified, 1 a check failed, 2 usage, 3 no usable card.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$PWD/qualify
quick=no
while (($# > 0)); do
  case $1 in
    --out)
      if (($# < 2)); then
        echo "gpu_qualify.sh: error: --out needs a value" >&2
        exit 2
      fi
      out=$2
      shift
      ;;
    --quick) quick=yes ;;
    -h | --help)
      sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "gpu_qualify.sh: error: unknown argument '$1'; see --help" >&2
      exit 2
      ;;
  esac
  shift
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
export LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$here"
failures=0

# check NAME COMMAND...: its output goes to NAME.log; one line says how it ended.
check() {
  local name=$1 start=$SECONDS verdict=PASS
  shift
  "$@" >"$out/$name.log" 2>&1 || verdict=FAIL
  printf '%-4s  %-22s %4d s\n' "$verdict" "$name" $((SECONDS - start))
  if [[ $verdict == FAIL ]]; then
    tail -n 15 "$out/$name.log"
    failures=$((failures + 1))
  fi
}

without_skips() {
  local text
  text=$("$@" 2>&1) || { printf '%s\n' "$text"; return 1; }
  printf '%s\n' "$text"
  [[ $text != *SKIPPED* ]]
}
digest_of() { ./tp2-parity self "$@" | tee /dev/stderr | awk 'NF == 3 {print $2; exit}'; }
# same_bits MODEL ROUNDS: the CPU's digest, and both CUDA modes with it.
same_bits() {
  local digest
  digest=$(digest_of --backend cpu --model "$1" --rounds "$2")
  ./tp2-parity self --backend cuda --model "$1" --rounds "$2" --modes one-card,emulated \
    --digest "$digest"
}
# same_grid MODEL: every recorded graph, eager and replayed.
same_grid() {
  local digest graphs
  digest=$(digest_of --backend cpu --model "$1" --grid)
  for graphs in "" --eager; do
    ./tp2-parity self --backend cuda --model "$1" --grid --modes one-card,emulated \
      --digest "$digest" $graphs
  done
}
sanitize() {
  TP2_RED_ZONES=off compute-sanitizer --tool "$1" --error-exitcode 1 ./gpu_test --gtest_brief=1 \
    --gtest_filter='Shapes/*tiny_2:Shapes/*tiny_v4_1:Widths/*/2'
}

{
  nvidia-smi || exit 3
  fields=name,uuid,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu
  nvidia-smi --format=csv --query-gpu=$fields,clocks_throttle_reasons.active
  lscpu | grep -E 'Model name|^CPU\(s\)'
} >"$out/machine.log" 2>&1 || {
  echo "gpu_qualify.sh: error: no usable GPU: nvidia-smi failed ($out/machine.log)" >&2
  exit 3
}
check cpu_math ./math_test --gtest_brief=1
check cpu_exl3 ./exl3_test --gtest_brief=1
check gpu_tests without_skips ./gpu_test
check bits_v41_tiny same_bits golden/v41-tiny 41
check grid_v41_tiny same_grid golden/v41-tiny
rm -rf "$out/medium"
./dspark-pack synth --shape medium --out "$out/medium" >"$out/synth.log"
check bits_medium same_bits "$out/medium" 41
check grid_medium same_grid "$out/medium"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck initcheck; do check "$tool" sanitize "$tool"; done
else
  echo "----  compute-sanitizer is not on PATH: not run"
fi
if [[ $quick == no ]]; then
  rm -rf "$out/v41-flash"
  ./dspark-pack synth --shape v41-flash --out "$out/v41-flash" >>"$out/synth.log"
  check bits_v41_flash same_bits "$out/v41-flash" 20
  check bench_one_card ./tp2-bench one-card --backend cuda --model "$out/v41-flash"
  check bench_emulated ./tp2-bench emulated --backend cuda --model "$out/v41-flash"
  rm -rf "$out/v41-flash"
fi
rm -rf "$out/medium"
echo "gpu_qualify.sh: $failures failed; logs in $out"
((failures == 0))
