#!/usr/bin/env bash
# stop_tp2.sh: drains and stops the two-card worker's service.
#
# usage: scripts/stop_tp2.sh [--unit NAME] [--user]
#   --unit NAME  default dsv41-dspark-worker-tp2.service
#   --user       the service of the user's own manager
#
# Exit codes: 0 it is stopped, 1 it ended badly, 2 usage, 3 no service manager.
set -euo pipefail
# shellcheck source=scripts/tp2_service.sh
source "$(dirname "${BASH_SOURCE[0]}")/tp2_service.sh"
read_options "$0" "$@"

"${systemctl[@]}" stop "$unit" || fail 1 "$unit did not stop"
result=$("${systemctl[@]}" show --property Result --value "$unit")
[[ $result == success ]] || fail 1 "$unit ended with $result"
say "$unit is stopped"
