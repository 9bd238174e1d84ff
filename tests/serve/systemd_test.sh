#!/usr/bin/env bash
# The shipped unit under a real systemd, in a mount namespace of its own: READY, kill -9 and back,
# equal drafts for a client that resyncs, a hung STEP loop, no restart for exit codes 2 and 3, a
# restart after three strikes. Needs root and a writable cgroup2; ends with 77 (skipped) without.
#
# usage: systemd_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
bin=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
readonly bin source_dir
port=${DSPARK_PORT:-$((20000 + RANDOM % 10000))}
export DSPARK_PORT=$port
readonly port golden=$source_dir/tests/golden/v41-tiny python=/usr/bin/python3

if [[ -z ${DSPARK_IN_NAMESPACE-} ]]; then
  [[ $(id -u) == 0 && -x /lib/systemd/systemd ]] ||
    { echo "skipped: needs root and systemd"; exit 77; }
  unshare --mount --pid --fork true 2>/dev/null || { echo "skipped: no namespaces"; exit 77; }
  # The pid namespace takes the manager and all its children along, however this script ends.
  DSPARK_IN_NAMESPACE=1 exec unshare --mount --pid --fork --mount-proc --kill-child "$0" "$@"
fi

scratch=$(mktemp -d)
own=
clean_up() {
  if [[ -n $own ]]; then
    echo $$ >/sys/fs/cgroup/cgroup.procs
    echo 1 >"$own/cgroup.kill"
    wait 2>/dev/null || true
    find "$own" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  fi
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
fail() {
  echo "FAIL: $*" >&2
  systemctl --user status --no-pager --lines 20 '*' >&2 || true
  tail -n 30 "$scratch"/*.log >&2
  exit 1
}

mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$scratch/runtime" "$scratch/units"
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || { echo "skipped: no cgroup2"; exit 77; }
own=/sys/fs/cgroup/dspark-test.${RANDOM}${RANDOM}
mkdir "$own" 2>/dev/null || { echo "skipped: no writable cgroup2"; exit 77; }
echo $$ >"$own/cgroup.procs"
export XDG_RUNTIME_DIR=$scratch/runtime HOME=$scratch SYSTEMD_UNIT_PATH=$scratch/units:
export DBUS_SESSION_BUS_ADDRESS=unix:path=$scratch/runtime/none

# The shipped unit without what a user's manager may not do, and with a short watchdog.
make_unit() { # NAME COMMAND
  sed -e "s|^ExecStart=.*|ExecStart=$2|" \
    -e '/^User=/d;/^Group=/d;/^\(Runtime\|State\)Directory=/d' \
    -e '/^Protect/d;/^Private/d;/^Restrict[A-Z][a-zA-Z]*=/{/^RestartPrevent/!d}' \
    -e '/^CapabilityBoundingSet/d;/^LockPersonality/d;/^SystemCallArch/d;/^NoNewPriv/d' \
    -e '/^OOMScore/d;/^LimitMEMLOCK/d' \
    -e 's/^WatchdogSec=.*/WatchdogSec=2/;s/^RestartSec=.*/RestartSec=0.2/' \
    "$source_dir/scripts/systemd/dspark-serve.service" >"$scratch/units/$1.service"
}
serve="$bin/dspark-serve --model $golden --backend cpu --listen 127.0.0.1:$port"
make_unit worker "$serve --admin 127.0.0.1:$((port + 1))"
make_unit usage "$serve --admin off --tp 9"
make_unit taken "$serve --admin off"
make_unit strikes \
  "$bin/faulty_serve --model $golden --backend cpu --listen 127.0.0.1:$((port + 2)) --admin off"
sed -i "s|^Type=notify|WorkingDirectory=$scratch\n&|" "$scratch/units/strikes.service"

/lib/systemd/systemd --user >"$scratch/manager.log" 2>&1 &
property() { systemctl --user show --property "$2" --value "$1"; }
wait_for() { # SECONDS COMMAND...
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < deadline)) || return 1; sleep 0.05; done
}
answers() { systemctl --user list-units --no-pager >/dev/null 2>&1; }
wait_for 20 answers || fail "no manager"

"$source_dir/scripts/start_tp2.sh" --user --unit worker.service --wait 30 \
  --admin 127.0.0.1:$((port + 1)) ||
  fail "the worker did not become ready"
"$source_dir/scripts/status_tp2.sh" --user --unit worker.service --admin 127.0.0.1:$((port + 1)) \
  >"$scratch/status.log" || fail "status"
grep -q '^StatusText=READY' "$scratch/status.log" || wait_for 3 sh -c \
  "systemctl --user show -p StatusText worker | grep -q READY" || fail "no status text"

draft() { # FILE: the drafts of a client that opens, inserts and steps
  PYTHONPATH=$source_dir/scripts "$python" - >"$1" <<'PYTHON'
import os
import numpy as np
from dspark_client import Client, to_bf16
random = np.random.default_rng(7)
with Client('127.0.0.1:' + os.environ['DSPARK_PORT']) as worker:
    slot = worker.open(5)
    for round in range(8):
        rows = to_bf16(random.uniform(-1, 1, (4, worker.row_values)))
        block, = worker.step([slot.part(rows, round)])
        print(block.bits.hex())
PYTHON
}
draft "$scratch/before"
first=$(property worker MainPID)
began=$(date +%s%N)
kill -KILL "$first"
runs_anew() { # OLD_PID
  [[ $(property worker MainPID) != "$1" && $(property worker SubState) == running ]]
}
wait_for 20 runs_anew "$first" || fail "not back after kill -9"
echo "kill -9 to READY: $((($(date +%s%N) - began) / 1000000)) ms (RestartSec 200 ms)"
draft "$scratch/after"
cmp "$scratch/before" "$scratch/after" || fail "other drafts after the restart"
[[ $(wc -l <"$scratch/after") == 8 ]] || fail "no drafts"

second=$(property worker MainPID)
kill -STOP "$second"  # the STEP loop no longer moves
began=$(date +%s%N)
wait_for 30 runs_anew "$second" || fail "the watchdog did not fire"
echo "stopped loop to READY: $((($(date +%s%N) - began) / 1000000)) ms (WatchdogSec 2 s)"
[[ $(property worker NRestarts) == 2 ]] || fail "NRestarts is $(property worker NRestarts), not 2"

for unit in usage taken; do
  systemctl --user start $unit.service 2>/dev/null && fail "$unit started"
  sleep 1
  [[ $(property $unit ActiveState) == failed ]] || fail "$unit is $(property $unit ActiveState)"
  [[ $(property $unit NRestarts) == 0 ]] || fail "$unit was restarted"
done
[[ $(property usage ExecMainStatus) == 2 && $(property taken ExecMainStatus) == 3 ]] || fail "codes"

systemctl --user start strikes.service
struck=$(property strikes MainPID)
(cd "$scratch" && PYTHONPATH=$source_dir/scripts "$python" \
  "$source_dir/tests/serve/fault_client.py" fail 127.0.0.1:$((port + 2)) cancel 3) \
  >"$scratch/strikes.log" 2>&1 || fail "strikes"
is_restarted() {
  [[ $(property strikes NRestarts) -ge 1 && $(property strikes MainPID) != "$struck" ]]
}
wait_for 10 is_restarted || fail "three strikes were not restarted"
strikes_run() { [[ $(property strikes SubState) == running ]]; }
wait_for 10 strikes_run || fail "not back after three strikes"

"$source_dir/scripts/stop_tp2.sh" --user --unit worker.service || fail "stop"
[[ $(property worker ExecMainStatus) == 0 ]] || fail "the drained worker's code"
echo "ok"
