#!/usr/bin/env bash
# status_tp2.sh: what the service manager and the two-card worker itself say.
#
# usage: scripts/status_tp2.sh [--unit NAME] [--admin HOST:PORT] [--user]
#   --unit NAME        default dsv41-dspark-worker-tp2.service
#   --admin HOST:PORT  where the worker's admin port is; default 127.0.0.1:18628
#   --user             the service of the user's own manager
#
# Exit codes: 0 it is ready, 1 it is not, 2 usage, 3 no service manager.
set -euo pipefail
# shellcheck source=scripts/tp2_service.sh
source "$(dirname "${BASH_SOURCE[0]}")/tp2_service.sh"
read_options "$0" "$@"

"${systemctl[@]}" show "$unit" \
  --property ActiveState,SubState,Result,NRestarts,MainPID,ExecMainStatus,StatusText
admin_get /status || true
is_ready || fail 1 "$unit: $(readiness)"
say "$unit is ready"
