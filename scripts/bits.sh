#!/usr/bin/env bash
# bits.sh: one set of bits, whatever compiled it. Builds tp2-parity in several ways, lets each draft
# the same rounds and requires one digest.
#
# usage: scripts/bits.sh [--model DIR] [--rounds N] [--seed S] [--expect HEX] [VARIANT...]
#   --model DIR   checkpoint; default tests/golden/v41-tiny
#   --rounds N    rounds per variant; default 24
#   --seed S      seed of the rounds' inputs; default 1
#   --expect HEX  the digest that every variant must have; without it that of the first one
#   VARIANT       gcc-O1 gcc-O3 clang-O1 clang-O3 gcc-v2 gcc-native gcc-asan; default all
#
# gcc-v2 is an x86-64-v2 machine: no AVX, and no other vector code in the program. gcc-native may
# use all that this processor has. The other variants choose their vector code at run time.
# Exit codes: 0 one digest, 1 digests differ or a run failed, 2 usage.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

model=$repo_root/tests/golden/v41-tiny
rounds=24
seed=1
expect=
variants=()
while (($# > 0)); do
  case $1 in
    --model | --rounds | --seed | --expect)
      if (($# < 2)); then fail 2 "$1 needs a value"; fi
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help) print_help "$0"; exit 0 ;;
    gcc-O1 | gcc-O3 | clang-O1 | clang-O3 | gcc-v2 | gcc-native | gcc-asan) variants+=("$1") ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
  esac
  shift
done
if ((${#variants[@]} == 0)); then
  variants=(gcc-O1 gcc-O3 clang-O1 clang-O3 gcc-v2 gcc-native gcc-asan)
fi

# flags_of VARIANT: optimization, architecture and sanitizers; -ffp-contract=off comes from CMake.
flags_of() {
  case $1 in
    *-O1) echo "-O1" ;;
    *-O3) echo "-O3" ;;
    # Highway otherwise compiles newer targets too and picks the best at run time.
    gcc-v2) echo "-O2 -march=x86-64-v2 -DHWY_COMPILE_ONLY_STATIC" ;;
    gcc-native) echo "-O3 -march=native" ;;
    gcc-asan) echo "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all" ;;
  esac
}

# build VARIANT: only tp2-parity, in a folder of its own; ccache makes the second time cheap.
build() {
  local folder=$repo_root/build/bits/$1 compiler=g++ log
  if [[ $1 == clang-* ]]; then compiler=clang++; fi
  log=$(log_file "bits-$1")
  { cmake -S "$repo_root" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="$(flags_of "$1")" \
    -DTP2_CUDA=OFF -DBUILD_TESTING=OFF &&
    cmake --build "$folder" --parallel "$(nproc)" --target tp2-parity; } >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2
      fail 1 "building variant $1 failed; the whole log is $log"; }
}

# digest_of VARIANT: runs the rounds; prints what the tool printed for them, `DIGEST ROUNDS`.
digest_of() {
  local output log
  log=$(log_file "bits-run-$1")
  output=$("$repo_root/build/bits/$1/bin/tp2-parity" self --model "$model" --modes one-card \
    --rounds "$rounds" --seed "$seed" --backend cpu 2>"$log") ||
    { printf '%s\n' "$output" >&2
      tail -n 40 "$log" >&2
      fail 1 "tp2-parity of variant $1 failed"; }
  awk '$1 == "one-card" && NF == 3 {print $2, $3}' <<<"$output"
}

say "checkpoint $model, $rounds rounds, seed $seed"
printf '#  %-10s  %-58s %-18s %6s %8s\n' variant "compiler flags" digest rounds "build(s)"
first=${expect:+$expect $rounds}
differing=0
for variant in "${variants[@]}"; do
  began=$SECONDS
  build "$variant"
  build_s=$((SECONDS - began))
  result=$(digest_of "$variant")
  if [[ ! $result =~ ^[0-9a-f]{16}\ [0-9]+$ ]]; then
    fail 1 "variant $variant: expected 'one-card DIGEST ROUNDS', got '$result'"
  fi
  first=${first:-$result}
  if [[ $result != "$first" ]]; then differing=$((differing + 1)); fi
  printf '   %-10s  %-58s %-18s %6s %8d\n' "$variant" "$(flags_of "$variant")" "${result% *}" \
    "${result#* }" "$build_s"
done
if ((differing > 0)); then
  fail 1 "$differing of ${#variants[@]} variants differ from ${expect:-${variants[0]}}"
fi
say "OK: ${#variants[@]} variants, one digest, $SECONDS s"
