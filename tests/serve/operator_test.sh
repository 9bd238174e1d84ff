#!/usr/bin/env bash
# dspark-serve as an operator meets it: the admin port, its page, the service manager's datagrams,
# traces, refused addresses, signals and exit codes.
#
# usage: operator_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
readonly bin=$1 golden=$2/tests/golden/v41-tiny python=/usr/bin/python3
# shellcheck source=tests/serve/worker.sh
source "$2/tests/serve/worker.sh"

refused() { # EXPECTED_CODE TEXT ARGUMENTS...
  local expected=$1 text=$2 code=0
  shift 2
  "$bin/dspark-serve" --model "$golden" --backend cpu "$@" \
    >"$scratch/refused.log" 2>&1 </dev/null || code=$?
  [[ $code == "$expected" ]] || fail "dspark-serve $* ended with $code, not $expected"
  grep -qF -- "$text" "$scratch/refused.log" || fail "dspark-serve $* did not say '$text'"
}

# Other machines may come in only with networks and a secret, and nobody reads a secret on the way.
openssl rand -hex 32 >"$scratch/secret"
chmod 600 "$scratch/secret"
refused 2 '--allow-clients and --secret-file' --listen 0.0.0.0:0
refused 2 '--allow-clients and --secret-file' --listen 0.0.0.0:0 --secret-file "$scratch/secret"
refused 2 '--allow-clients and --secret-file' --listen 0.0.0.0:0 --allow-clients 10.0.0.0/8
refused 2 'no bits of the address' --allow-clients 10.0.0.1/8
refused 2 "a loopback address" --listen 127.0.0.1:0 --admin 0.0.0.0:0
refused 2 'an RDMA device in --listen' --rdma require --listen 127.0.0.1:0
if [[ ! -e /dev/infiniband/rdma_cm ]]; then
  refused 3 'RDMA: expected ' --rdma require --listen 0.0.0.0:0 --admin off \
    --allow-clients 127.0.0.0/8 --secret-file "$scratch/secret"
fi
chmod 640 "$scratch/secret"
refused 2 'chmod 600' --secret-file "$scratch/secret"
chmod 600 "$scratch/secret"

# A stand-in for the service manager: writes each datagram as it comes.
"$python" - "$scratch/notify" >"$scratch/notify.log" <<'PYTHON' &
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(sys.argv[1])
while True:
    text = listener.recv(4096).decode()
    print(text, flush=True)
    if text == 'STOPPING=1':
        break
PYTHON
manager=$!
helpers+=("$manager")
for _ in $(seq 100); do [[ -S $scratch/notify ]] && break; sleep 0.05; done
listen=0.0.0.0:0
NOTIFY_SOCKET=$scratch/notify WATCHDOG_USEC=400000 start_worker "$golden" \
  --allow-clients 127.0.0.0/8 --secret-file "$scratch/secret" \
  --trace "$scratch/trace.json"
address=127.0.0.1:${address##*:}
"$bin/dspark-selftest" contract --server "$address" --model "$golden" --backend cpu \
  --latency-rounds 3 --secret-file "$scratch/secret" >"$scratch/client.log" 2>&1 ||
  fail "the contract does not hold"

"$python" - "$admin" "$scratch" <<'PYTHON' || fail "the admin port"
import json, re, sys, urllib.request, urllib.error
from html.parser import HTMLParser

def get(path, code=200):
    try:
        reply = urllib.request.urlopen(f'http://{sys.argv[1]}{path}', timeout=10)
    except urllib.error.HTTPError as error:
        reply = error
    assert reply.status == code, (path, reply.status)
    return reply.read().decode()

assert get('/healthz').startswith('ok')
assert get('/readyz') == 'ready\n'
get('/nothing', 404)
status = json.loads(get('/status'))
assert status['state'] == 'READY' and status['ready'] and status['steps'] > 40, status
assert status['clients_prove_secret'] and len(status['slots']) == 8 and status['canaries'] >= 1
metrics = get('/metrics')
values = dict(line.rsplit(' ', 1) for line in metrics.splitlines() if not line.startswith('#'))
assert int(float(values['dspark_steps_total{status="ok"}'])) == status['steps']
assert float(values['dspark_step_seconds_count{n_out="5",n_req="1"}']) > 0
assert float(values['dspark_replies_total{code="IDENTITY_MISMATCH"}']) >= 1
assert 'dspark_drafts_accepted_total{position="4"}' in values
names = [line.split()[2] for line in metrics.splitlines() if line.startswith('# TYPE')]
assert len(names) == len(set(names)), 'a family appears twice'
trace = json.loads(get('/trace'))
assert any(event['ph'] == 'X' and event['args']['good'] for event in trace['traceEvents'])

class Page(HTMLParser):
    """Every element is closed in order, and nothing needs a script or another server."""
    def __init__(self):
        super().__init__()
        self.open, self.ids = [], set()
    def handle_starttag(self, tag, attributes):
        assert tag not in ('script', 'img', 'link', 'iframe'), tag
        self.ids |= {value for key, value in attributes if key == 'id'}
        if tag != 'meta':
            self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
page = Page()
text = get('/')
page.feed(text)
assert not page.open and page.ids == {'slots', 'latency', 'errors'}, page.ids
assert 'dspark-serve: READY' in text and text.count('FREE') == 8
secret = open(sys.argv[2] + '/secret').read().strip()
assert not any(secret in get(p) for p in ('/', '/status', '/metrics', '/trace'))
PYTHON

sleep 1.2
stop_worker 0
wait "$manager"
grep -q '^EXTEND_TIMEOUT_USEC=' "$scratch/notify.log" || fail "start-up was not extended"
[[ $(grep -c '^READY=1$' "$scratch/notify.log") == 1 ]] || fail "READY=1 must come once"
(($(grep -c '^WATCHDOG=1$' "$scratch/notify.log") >= 3)) || fail "the watchdog was not fed"
grep -q '^STATUS=READY, ' "$scratch/notify.log" || fail "no status line"
"$python" -c 'import json, sys; json.load(open(sys.argv[1]))' "$scratch/trace.json" ||
  fail "the trace is no JSON"
for file in worker errors client notify; do
  if grep -qF "$(cat "$scratch/secret")" "$scratch/$file.log"; then fail "secret in $file.log"; fi
done

# With a slot open SIGTERM waits for it, the second one does not; a taken port is the environment's.
listen=127.0.0.1:0
start_worker "$golden" --drain-ms 60000
refused 3 "a free address" --listen "$address" --admin off
"$python" - "$2/scripts" "$address" "$scratch/held" <<'PYTHON' &
import sys, time
sys.path.insert(0, sys.argv[1])
from dspark_client import Client
client = Client(sys.argv[2])
client.open()
open(sys.argv[3], 'w').close()
time.sleep(60)
PYTHON
holder=$!
helpers+=("$holder")
for _ in $(seq 100); do [[ -e $scratch/held ]] && break; sleep 0.05; done
kill -TERM "$worker"
sleep 0.5
kill -0 "$worker" || fail "the worker did not wait for the open slot"
[[ $("$python" -c 'import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen("http://%s/readyz" % sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    print(error.status)' "$admin") == 503 ]] || fail "a draining worker says it is ready"
began=$SECONDS
stop_worker 0
((SECONDS - began <= 5)) || fail "the second SIGTERM waited"
echo "ok"
