#!/usr/bin/env bash
# test.sh: everything that can be tested without a GPU; what continuous integration runs.
#
# usage: scripts/test.sh [--quick]
#   --quick   only the g++ build and its tests (minutes); without it also the style rules, a second
#             compiler, the sanitizers, the fuzz targets and the portability of the bits
#
# Installs missing packages first. The last lines are the summary of ctest; exit 0 means that
# every stage and every test passed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stages=(tidy clang asan tsan fuzz bits)
case "${1-}" in
  "") ;;
  --quick) stages=() ;;
  -h | --help) print_help "$0"; exit 0 ;;
  *) fail 2 "unknown argument '$1'; see --help" ;;
esac

"$repo_root/scripts/setup.sh"
if ((${#stages[@]} > 0)); then "$repo_root/scripts/ci.sh" "${stages[@]}"; fi

say "build (preset dev) and test"
configure_and_build dev
configure_and_build dev all_verify_interface_header_sets
cd "$repo_root"
say "built, $SECONDS s so far; now ctest --preset dev"
# The summary of ctest stays last: nothing may print after it.
exec ctest --preset dev --parallel "$(nproc)"
