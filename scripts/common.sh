# Sourced by every script here: where the repository is, how to speak, how to fail, how to time.
# shellcheck shell=bash

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo_root
script_name=$(basename "$0")
readonly script_name

# Lets a fresh clone in another folder reuse what ccache holds: paths below the tree do not count.
export CCACHE_BASEDIR=$repo_root CCACHE_NOHASHDIR=1

say() { printf '%s: %s\n' "$script_name" "$*"; }

# fail EXIT_CODE MESSAGE: codes as in the tools (2 usage, 3 environment, 1 a check failed).
fail() {
  local code=$1
  shift
  printf '%s: error: %s\n' "$script_name" "$*" >&2
  exit "$code"
}

# print_help FILE: the comment block at the top of a script is its help text.
print_help() { sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$1"; }

# configure_and_build PRESET [TARGET...]: the whole preset when no target is named.
configure_and_build() {
  local preset=$1
  shift
  local targets=()
  if (($# > 0)); then targets=(--target "$@"); fi
  (cd "$repo_root" && cmake --preset "$preset" >"$(log_file "configure-$preset")" 2>&1) ||
    { cat "$(log_file "configure-$preset")" >&2; fail 1 "cmake --preset $preset failed"; }
  (cd "$repo_root" && cmake --build "build/$preset" --parallel "$(nproc)" "${targets[@]}" \
    >"$(log_file "build-$preset")" 2>&1) ||
    { tail -n 60 "$(log_file "build-$preset")" >&2
      fail 1 "building $preset failed; the whole log is $(log_file "build-$preset")"; }
}

# log_file NAME: where the output of a long step goes; its folder exists afterwards.
log_file() {
  mkdir -p "$repo_root/build/logs"
  printf '%s/build/logs/%s.log' "$repo_root" "$1"
}

# cpp_files: every C++ file under review, one a line: tracked or new and not ignored; recorded
# bytes under tests/golden are left alone.
cpp_files() {
  (
    cd "$repo_root" || exit 1
    git ls-files -co --exclude-standard 2>/dev/null ||
      find . -path ./build -prune -o -type f -printf '%P\n'
  ) | grep -E '\.(cc|h|cu|cuh)$' | grep -v '^tests/golden/' | while read -r path; do
    if [[ -f $repo_root/$path ]]; then printf '%s\n' "$path"; fi
  done
}
