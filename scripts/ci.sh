#!/usr/bin/env bash
# ci.sh: the stages of continuous integration, the same on a laptop; stops at the first failure.
#
# usage: scripts/ci.sh [STAGE...]      without stages: all of them except clang-tidy
#   tidy        layering and style rules, their self-test, formatting, shellcheck (seconds)
#   dev         g++: everything builds, every public header compiles alone, all CPU tests
#   rdma        the RDMA transport on soft-RoCE in a virtual machine, with the binaries of dev
#   clang       clang++ with warnings as errors, the tests that pin bits
#   asan        address and undefined-behaviour sanitizers, the tests of code that reads bytes from
#               outside and of the vector kernels (the whole suite: ctest --preset asan)
#   tsan        thread sanitizer, the tests of code that starts threads or serves clients
#   fuzz        every fuzz target for FUZZ_SECONDS (default 15) from its corpus; FUZZ_SEED (default
#               1) keeps a commit's runs alike, 0 draws one: FUZZ_SECONDS=600 FUZZ_SEED=0 explores
#   bits        the digest of a program without AVX; the tests pin the same digests with g++ -O2 and
#               clang++ -O2, scripts/bits.sh compares seven ways to compile
#   clang-tidy  static analysis of host files that differ from main (all of them: preset tidy)
#
# Prints one line per stage and a table of times at the end. Packages come from scripts/setup.sh.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# run_tests FOLDER [CTEST_OPTION...]: below build/; quiet unless something fails; style has a stage
# of its own. A test preset's filters win over the command line, so the folder is named instead.
run_tests() {
  local log folder=$1
  shift
  log=$(log_file "ctest-${folder//\//-}")
  ctest_folder "$folder" "$@" >"$log" 2>&1 || repeat_after_sanitizer "$folder" "$log" "$@" ||
    { tail -n 80 "$log" >&2
      fail 1 "tests in build/$folder failed; the whole log is $log"; }
  grep -E 'tests passed' "$log" | tail -n 1
}

ctest_folder() {
  local folder=$1
  shift
  ctest --test-dir "$repo_root/build/$folder" --parallel "$(nproc)" --no-tests=error \
    --output-on-failure --label-exclude 'gpu|pair|bench|tidy' "$@"
}

# Once more when gcc 12's thread sanitizer failed a check of its own (rarely, in a join) and had
# nothing to report of ours.
repeat_after_sanitizer() {
  local folder=$1 log=$2
  shift 2
  if ! grep -q 'ThreadSanitizer: CHECK failed' "$log" ||
    grep -q 'WARNING: ThreadSanitizer' "$log"; then return 1; fi
  say "the thread sanitizer failed a check of its own; the tests that failed run once more"
  ctest_folder "$folder" --rerun-failed "$@" >>"$log" 2>&1
}

stage_tidy() {
  python3 "$repo_root/scripts/tidy.py" --self-test
  python3 "$repo_root/scripts/tidy.py"
  "$repo_root/scripts/format.sh" --check
  "$repo_root/scripts/shell_check.sh"
}

stage_dev() {
  configure_and_build dev
  configure_and_build dev all_verify_interface_header_sets
  run_tests dev
}

# Skipped, with its reason, on a machine without the packages or the kernel.
stage_rdma() {
  local log
  log=$(log_file ctest-rdma)
  configure_and_build dev
  ctest --test-dir "$repo_root/build/dev" --label-regex rdma --no-tests=error \
    --output-on-failure >"$log" 2>&1 ||
    { tail -n 80 "$log" >&2
      fail 1 "RDMA tests failed; the whole log is $log"; }
  grep -E 'tests passed|^SKIPPED' "$log" "$repo_root/build/dev/rdma/verdicts" -h
}

# The second front end sees all of the product and the tests that pin bits; the other tests say
# nothing about a compiler that the first one does not.
stage_clang() {
  configure_and_build clang cmd/all
  run_folders clang math exl3 ops drafter
}

# run_folders PRESET FOLDER...: builds and runs the tests of some folders of tests/. Tests of whole
# tools (names ending in _tool) belong to the dev build, which has all tools.
run_folders() {
  local preset=$1 folder targets=()
  shift
  for folder in "$@"; do targets+=("tests/$folder/all"); done
  configure_and_build "$preset" "${targets[@]}"
  for folder in "$@"; do run_tests "$preset/tests/$folder" --exclude-regex '_tool$'; done
}

# Hostile files and frames, and kernels that count their own bytes.
stage_asan() { run_folders asan base model checkpoint capture contract exl3 ops; }

# Only what starts threads or serves clients; the rest has nothing to race.
stage_tsan() { run_folders tsan base transport contract server collectives; }

stage_fuzz() {
  local seconds=${FUZZ_SECONDS:-15} targets target work
  (cd "$repo_root" && cmake --preset fuzz >"$(log_file configure-fuzz)" 2>&1) ||
    { cat "$(log_file configure-fuzz)" >&2
      fail 1 "cmake --preset fuzz failed"; }
  mapfile -t targets < <(cd "$repo_root" && cmake --build build/fuzz --target help |
    sed -n 's/^\([a-z0-9_]*_fuzz\): .*/\1/p' | sort -u)
  if ((${#targets[@]} == 0)); then fail 1 "preset fuzz has no target named *_fuzz"; fi
  configure_and_build fuzz "${targets[@]}"
  for target in "${targets[@]}"; do
    work=$repo_root/build/fuzz/work/$target
    mkdir -p "$work/corpus"
    local inputs=("$work/corpus") seeds=$repo_root/tests/fuzz/corpus/${target%_fuzz}
    if [[ -d $seeds ]]; then inputs+=("$seeds"); fi
    "$repo_root/build/fuzz/bin/$target" -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" \
      -timeout=10 \
      -rss_limit_mb=2048 -artifact_prefix="$work/" "${inputs[@]}" \
      >"$(log_file "$target")" 2>&1 ||
      { tail -n 40 "$(log_file "$target")" >&2
        fail 1 "$target found an input that breaks it: see $work"; }
    say "$target: $(grep -oE 'Done [0-9]+ runs' "$(log_file "$target")" || echo finished)"
  done
}

# Against the committed digest: one variant compared with itself could not fail.
stage_bits() {
  local digest
  digest=$(sed -n 's/.*"v41-tiny": "\([0-9a-f]*\)".*/\1/p' "$repo_root/tests/golden/digests.json")
  "$repo_root/scripts/bits.sh" --rounds 41 --seed 1 --expect "$digest" gcc-v2
}

# Seven seconds a file: only what this branch changes; without a main branch, everything.
stage_clang_tidy() {
  local base files
  base=$(git -C "$repo_root" merge-base HEAD main 2>/dev/null || true)
  if [[ -z $base || $base == "$(git -C "$repo_root" rev-parse HEAD)" ]]; then
    mapfile -t files < <(cpp_files | grep -E '^(libcore|cmd)/.*\.cc$')
  else
    mapfile -t files < <(cd "$repo_root" && git diff --name-only --diff-filter=d "$base" -- \
      'libcore/*.cc' 'cmd/*.cc')
  fi
  if ((${#files[@]} == 0)); then
    say "no host file differs from main"
    return
  fi
  configure_and_build clang tp2_build_info
  (cd "$repo_root" && printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build/clang) ||
    fail 1 "clang-tidy complained about some of ${#files[@]} files"
}

stages=()
for argument in "$@"; do
  case $argument in
    -h | --help) print_help "$0"; exit 0 ;;
    tidy | dev | rdma | clang | asan | tsan | fuzz | bits | clang-tidy) stages+=("$argument") ;;
    *) fail 2 "unknown stage '$argument'; see --help" ;;
  esac
done
if ((${#stages[@]} == 0)); then stages=(tidy dev rdma clang asan tsan fuzz bits); fi

table=
for stage in "${stages[@]}"; do
  say "stage $stage"
  began=$SECONDS
  "stage_${stage//-/_}"
  table+=$(printf '  %-10s %5d s' "$stage" "$((SECONDS - began))")$'\n'
done
say "times:"
printf '%s' "$table"
say "OK: ${#stages[@]} stages in $SECONDS s"
