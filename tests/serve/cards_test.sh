#!/usr/bin/env bash
# The cards of a worker on its admin port, with a libnvidia-ml that follows a script. The CPU
# computes; --gpus names the cards to watch.
#
# usage: cards_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
readonly bin=$1 golden=$2/tests/golden/v41-tiny python=/usr/bin/python3
# shellcheck source=tests/serve/worker.sh
source "$2/tests/serve/worker.sh"
readonly library=$scratch/libnvidia-ml.so.1 uuid=GPU-c4e7a371-1111-2222-3333-444455556666

cards() { # LINES...: what the cards say from now on
  printf '%s\n' 'cards = 2' "card0.uuid = GPU-7744b44b-1111-2222-3333-444455556666" \
    "card1.uuid = $uuid" 'card1.name = Fake H200' "$@" >"$library.script.new"
  mv "$library.script.new" "$library.script"
}
# expect PYTHON: an expression over `status`, `metrics` and `page` that becomes true.
expect() {
  "$python" - "$admin" "$1" <<'PYTHON' || fail "$1"
import json, sys, time, urllib.request

def get(path):
    return urllib.request.urlopen(f'http://{sys.argv[1]}{path}', timeout=10).read().decode()

for _ in range(300):
    status, page = json.loads(get('/status')), get('/')
    lines = get('/metrics').splitlines()
    metrics = dict(line.rsplit(' ', 1) for line in lines if not line.startswith('#'))
    names = [line.split()[2] for line in lines if line.startswith('# TYPE')]
    assert len(names) == len(set(names)), 'a family appears twice'
    try:
        if eval(sys.argv[2]):
            sys.exit(0)
    except (KeyError, TypeError, IndexError):
        pass  # not there yet
    time.sleep(0.1)
print(json.dumps(status['telemetry'], indent=1), metrics)
sys.exit(1)
PYTHON
}
cp "$bin/fake_nvml.so" "$library"
readonly label="{rank=\"0\",card=\"$uuid\"}"

cards 'card1.power_mw = 351000' 'card1.temperature = 61' 'card1.links = 1' 'card1.link0.replay = 5'
start_worker "$golden" --gpus c4e7a371 --nvml "$library"
grep -q "^cards .*rank 0 Fake H200 $uuid, driver 580.0-fake" "$scratch/worker.log" ||
  fail "no line about the card"
expect "float(metrics['dspark_card_power_watts$label']) == 351"
expect "metrics['dspark_card_up$label'] == '1' and not status['telemetry']['is_stale']"
expect "status['telemetry']['cards'][0]['sample']['temperature_c'] == 61"
expect "'id=\"cards\"' in page and '351 W' in page"
cards 'card1.power_mw = 351000' 'card1.links = 1' 'card1.link0.replay = 8'
expect "status['telemetry']['cards'][0]['link_errors'] == 3"
# A card that falls off the bus takes nothing with it.
cards 'card1.code = 15'
expect "metrics['dspark_card_up$label'] == '0' and 'dspark_card_power_watts$label' not in metrics"
expect "status['ready'] and 'lost' in status['telemetry']['cards'][0]['sample']['error']"
# Neither does one that hangs: the worker ends as fast as ever.
cards 'card1.hang_ms = 60000'
expect "status['telemetry']['is_stale']"
helper=$(pgrep -P "$worker" -x telemetry) || fail "no helper process"
stop_worker 0
if kill -0 "$helper" 2>/dev/null; then fail "the helper outlived the worker"; fi

# Without a driver, without that card, or when nobody asks, the worker serves as well.
start_worker "$golden" --gpus c4e7a371 --nvml /none/libnvidia-ml.so.1
grep -q 'no telemetry: .*/none/libnvidia-ml.so.1' "$scratch/errors.log" || fail "no warning"
expect "status['telemetry'] is None and not any(name.startswith('dspark_card') for name in metrics)"
stop_worker 0
cards
start_worker "$golden" --gpus deadbeef --nvml "$library"
grep -q 'no telemetry: .*deadbeef' "$scratch/errors.log" || fail "no warning"
stop_worker 0
start_worker "$golden" --nvml "$library"
expect "status['telemetry'] is None"
if pgrep -P "$worker" -x telemetry >/dev/null; then fail "a helper without a card"; fi
stop_worker 0
echo "cards_test.sh: all cases hold"
