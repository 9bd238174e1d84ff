#!/usr/bin/env bash
# shell_check.sh: shellcheck over every shell script of the repository.
#
# usage: scripts/shell_check.sh
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v shellcheck >/dev/null || fail 3 "shellcheck is missing; run scripts/setup.sh"
cd "$repo_root"
mapfile -t files < <(find .ci scripts tests cmd -name '*.sh' -o -path '.ci/run' | sort)
shellcheck --external-sources "${files[@]}" || fail 1 "shellcheck complained; see above"
say "${#files[@]} scripts are clean"
