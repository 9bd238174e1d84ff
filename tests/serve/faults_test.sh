#!/usr/bin/env bash
# Rows of the fault table that need the worker's process or its network: restarts, signals, taken
# ports, lost logs, an admin port under fire, clocks that jump, system calls that work as badly as
# they may. The rows that a client alone can make are `dspark-selftest faults`.
#
# usage: faults_test.sh BIN_DIR SOURCE_DIR [RESULT_FILE]
#   RESULT_FILE  also writes the rows as JSON; an existing file is not overwritten
set -euo pipefail
bin=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
readonly bin source_dir golden=$source_dir/tests/golden/v41-tiny python=/usr/bin/python3
readonly result=${3-}
# shellcheck source=tests/serve/worker.sh
source "$source_dir/tests/serve/worker.sh"
# shellcheck source=tests/serve/rows.sh
source "$source_dir/tests/serve/rows.sh"

soak() { # SECONDS: full rate, every round compared; writes soak.json
  rm -f "$scratch/soak.json"
  "$bin/dspark-selftest" soak --server "$address" --model "$golden" --backend cpu --threads 1 \
    --seconds "$1" --json "$scratch/soak.json" >"$scratch/soak.log" 2>&1
}
wait_for_file() {
  for _ in $(seq 200); do [[ -e $1 ]] && return; sleep 0.05; done
  fail "$1 did not appear"
}

silent_host() {
  unshare -n sleep 60 2>/dev/null &
  local host=$!
  helpers+=("$host")
  local link=dspark$((RANDOM % 10000))
  sleep 0.3
  ip link add "$link" type veth peer name inside netns "$host" 2>/dev/null || return 1
  ip address add 198.18.77.1/30 dev "$link"
  ip link set "$link" up
  nsenter -t "$host" -n ip address add 198.18.77.2/30 dev inside
  nsenter -t "$host" -n ip link set inside up
  openssl rand -hex 32 >"$scratch/secret"
  chmod 600 "$scratch/secret"
  listen=198.18.77.1:0 start_worker "$golden" --allow-clients 198.18.77.0/30 \
    --secret-file "$scratch/secret"
  rm -f "$scratch/held"
  nsenter -t "$host" -n env PYTHONPATH="$PYTHONPATH" "$python" \
    "$source_dir/tests/serve/fault_client.py" hold "$address" "$scratch/held" "$scratch/secret" &
  helpers+=("$!")
  wait_for_file "$scratch/held"
  ip link set "$link" down
  row F3 client-host-silent "$(client free "$admin" 10)" "ms until its slot is free"
  ip link delete "$link"
  stop_worker 0
}
silent_host || skip F3 client-host-silent "no network namespace or no virtual cable"

listen=127.0.0.1:0
start_worker "$golden"
listen=$address
# F28: the worker dies under load and comes back on the same port.
client return "$address" 60 >"$scratch/return.out" 2>"$scratch/return.log" &
loop=$!
helpers+=("$loop")
sleep 1
stop_worker 137 KILL
start_worker "$golden"
wait "$loop" || fail "the client did not come back"
row F28 restart-under-load "$(cat "$scratch/return.out")" \
  "ms from kill -9 to the first good STEP of the client, drafts equal"

# F29: SIGTERM under load; the client closes its slot when it is told to.
client drain "$address" >"$scratch/drain.out" 2>"$scratch/drain.log" &
loop=$!
helpers+=("$loop")
sleep 1
began=$(now_ms)
stop_worker 0
row F29 sigterm-under-load $(($(now_ms) - began)) "ms from SIGTERM to exit 0"
wait "$loop" || fail "a STEP of a draining worker was lost"
(($(cat "$scratch/drain.out") > 0)) || fail "no STEP before the drain"

# F32: a taken port is named; one that was left by a kill is free at once, with connections in
# TIME_WAIT and all.
start_worker "$golden"
code=0
"$bin/dspark-serve" --model "$golden" --backend cpu --listen "$listen" --admin off \
  >"$scratch/taken.log" 2>&1 || code=$?
[[ $code == 3 ]] || fail "a second instance ended with $code, not 3"
grep -qF "$listen" "$scratch/taken.log" || fail "the taken port is not named"
for _ in $(seq 5); do
  client rounds "$address" 1 >/dev/null
  stop_worker 137 KILL
  start_worker "$golden"
done
row F32 port-taken-and-left 5 "restarts at once on the same port"

# F30: stopped for two seconds in the middle of STEPs.
soak 5 &
loop=$!
sleep 1
kill -STOP "$worker"
sleep 2
kill -CONT "$worker"
wait "$loop" || fail "a stopped worker drafted something else: $(cat "$scratch/soak.log")"
row F30 stopped-and-continued "$(soak_field wrong_rounds)" "wrong rounds around a stop of 2 s"

# F33: an admin port under fire.
client noise "$admin" 4 >"$scratch/noise.out" 2>"$scratch/noise.log" &
loop=$!
helpers+=("$loop")
soak 3 || fail "a soak beside scrapes: $(cat "$scratch/soak.log")"
# A soak of an hour had one request, which ran into the worker's longest sequence: BAD_ENTRY.
(($(soak_field requests) >= 1)) || fail "the soak's paying client never began a request anew"
wait "$loop" || fail "the admin port did not answer"
row F33a admin-under-fire "$(cat "$scratch/noise.out")" "scrapes in 4 s, 0 wrong rounds beside them"
stop_worker 0

# F33: nobody takes the log: a full disk, then no stderr at all, whose number must not become a
# client's.
for sink in full closed; do
  if [[ $sink == full ]]; then
    worker_errors=/dev/full start_worker "$golden"
  else
    worker_errors=closed start_worker "$golden"
  fi
  soak 2 || fail "a soak with stderr $sink: $(cat "$scratch/soak.log")"
  stop_worker 0
done
row F33b log-full-or-closed "$(soak_field wrong_rounds)" \
  "wrong rounds with /dev/full and without stderr"

# A sanitizer's runtime must come first: nothing can be preloaded in front of it.
if ldd "$bin/dspark-serve" | grep -q 'lib[at]san'; then
  skip F38 clock-jumps "a sanitizer build"
  skip "F39 F40" interrupted-and-partial-calls "a sanitizer build"
  finish_rows
  exit 0
fi
# F38: the wall clock and the boot clock jump by a day.
cp "$bin/shifted_clock.so" "$scratch/"
LD_PRELOAD=$scratch/shifted_clock.so start_worker "$golden"
soak 4 &
loop=$!
for shift in '86400 0' '-86400 0' '0 86400' '0 0'; do
  sleep 0.8
  echo "$shift" >"$scratch/shifted_clock.so.shift"
done
wait "$loop" || fail "clocks jumped: $(cat "$scratch/soak.log")"
row F38 clock-jumps "$(soak_field wrong_rounds)" "wrong rounds around 4 jumps"
stop_worker 0

# F39, F40: interrupted calls, calls to repeat, one byte at a time.
LD_PRELOAD=$bin/broken_sockets.so start_worker "$golden" --frame-ms 60000
"$bin/dspark-selftest" contract --server "$address" --model "$golden" --backend cpu --threads 1 \
  --rounds 4 --latency-rounds 0 >"$scratch/client.log" 2>&1 ||
  fail "the contract one byte at a time"
row "F39 F40" interrupted-and-partial-calls "$(grep -c ^PASS "$scratch/client.log")" \
  "contract checks passed one byte at a time"
stop_worker 0
finish_rows
