#!/usr/bin/env bash
# verdict.sh: what the virtual machine said of one case.
#
# usage: verdict.sh VERDICTS CASE
#        verdict.sh VERDICTS --only CASE...   no case but these was run
# Exit codes: 0 passed, 1 failed or never run, 77 skipped.
set -euo pipefail
verdicts=$1
shift
if grep '^SKIPPED' "$verdicts"; then exit 77; fi
if [[ $1 != --only ]]; then
  grep -xE "(PASS|FAIL) $1(/Verbs)?" "$verdicts" || echo "never run"
  grep -qxE "PASS $1(/Verbs)?" "$verdicts"
  exit
fi
shift
unlisted=$(sed -E 's/^[A-Z]+ //; s|/Verbs$||' "$verdicts" |
  grep -vxF -f <(printf '%s\n' "$@") || true)
if [[ -n $unlisted ]]; then
  printf 'tests/rdma/CMakeLists.txt does not list:\n%s\n' "$unlisted"
  exit 1
fi
