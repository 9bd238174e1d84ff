#!/usr/bin/env bash
# start_tp2.sh: starts the two-card worker's service and waits until it can serve.
#
# usage: scripts/start_tp2.sh [--unit NAME] [--admin HOST:PORT] [--wait SECONDS] [--user]
#   --unit NAME        default dsv41-dspark-worker-tp2.service
#   --admin HOST:PORT  where the worker's admin port is; default 127.0.0.1:18628
#   --wait SECONDS     how long it may take; default 120
#   --user             the service of the user's own manager
#
# Exit codes: 0 it is ready, 1 it did not become ready, 2 usage, 3 no service manager.
set -euo pipefail
# shellcheck source=scripts/tp2_service.sh
source "$(dirname "${BASH_SOURCE[0]}")/tp2_service.sh"
read_options "$0" "$@"

"${systemctl[@]}" start "$unit" || fail 1 "$unit did not start; see: journalctl -u $unit"
deadline=$((SECONDS + wait_s))
until is_ready; do
  ((SECONDS < deadline)) || fail 1 "$unit runs and is not ready after $wait_s s: $(readiness)"
  sleep 0.2
done
say "$unit is ready"
