#!/usr/bin/env bash
# format.sh: formats every C++ file of the repository with clang-format 14 and the tree's rules.
#
# usage: scripts/format.sh [--check]
#   --check   change nothing; name every place that would change and exit 1
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=(-i)
case "${1-}" in
  "") ;;
  --check) mode=(--dry-run -Werror) ;;
  -h | --help) print_help "$0"; exit 0 ;;
  *) fail 2 "unknown argument '$1'; see --help" ;;
esac

# Another version breaks lines elsewhere; Debian 12's is the one that counts.
version=$(clang-format --version 2>/dev/null || true)
if [[ $version != *"version 14."* ]]; then
  fail 3 "expected clang-format 14, got '${version:-none}'; run scripts/setup.sh"
fi

mapfile -t files < <(cpp_files)
if ((${#files[@]} == 0)); then fail 3 "no C++ files found under $repo_root"; fi
cd "$repo_root"
printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P "$(nproc)" clang-format --style=file "${mode[@]}" ||
  fail 1 "some of ${#files[@]} files are not formatted; run scripts/format.sh"
say "${#files[@]} files are formatted"
