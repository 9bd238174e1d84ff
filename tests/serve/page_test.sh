#!/usr/bin/env bash
# The admin page as a browser shows it: headless Chromium finds every table filled and no script,
# draws the page and needs no host but the worker's. Chromium is 414 MB and no part of the default
# install: without it the test ends with 77 (skipped); `apt-get install chromium` makes it run.
#
# usage: page_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
readonly bin=$1 golden=$2/tests/golden/v41-tiny python=/usr/bin/python3
chromium=$(command -v chromium) ||
  { echo "skipped: no chromium; apt-get install chromium"; exit 77; }
# shellcheck source=tests/serve/worker.sh
source "$2/tests/serve/worker.sh"

start_worker "$golden"
"$bin/dspark-selftest" contract --server "$address" --model "$golden" --backend cpu --threads 1 \
  --latency-rounds 0 >"$scratch/client.log" 2>&1 || fail "the contract does not hold"

browse() { # ARGUMENTS...: its own profile; no other host has an address
  # The sandbox needs user namespaces, which containers do not give; the page is our own.
  timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$scratch/profile" --disable-background-networking --no-first-run \
    --no-proxy-server --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' \
    --window-size=1000,1400 "$@" 2>"$scratch/chromium.log"
}
browse --dump-dom "http://$admin/" >"$scratch/page.log" || fail "no page"
browse --screenshot="$scratch/page.png" "http://$admin/" >/dev/null || fail "no picture"

"$python" - "$scratch" <<'PYTHON' || fail "the page"
import re, struct, sys
scratch = sys.argv[1]
page = open(scratch + '/page.log').read()
for part in ('<title>dspark-serve: READY</title>', '<h1>dspark-serve: READY</h1>'):
    assert part in page, page[:500]

def cells(table):
    body = re.search(r'<table id="%s">(.*?)</table>' % table, page, re.S).group(1)
    rows = re.findall(r'<tr>(.*?)</tr>', body, re.S)
    return [re.findall(r'<td[^>]*>(.*?)</td>', row, re.S) for row in rows if '<td' in row]
slots = cells('slots')
assert len(slots) == 8 and all(row[1] == 'FREE' for row in slots), slots
assert cells('latency'), 'no histogram'
steps = re.search(r'STEPs</t[hd]>\s*<td>(\d+),', page)
assert steps and int(steps.group(1)) > 40, 'no STEPs'
assert not re.search(r'(<script|src=|url\(|href="[^/])', page), 'something from elsewhere'
png = open(scratch + '/page.png', 'rb').read()
width, height = struct.unpack('>II', png[16:24])
assert png[:8] == b'\x89PNG\r\n\x1a\n' and (width, height) == (1000, 1400), (width, height)
assert len(png) > 10_000, len(png)
print(f'a page of {len(page)} bytes, a picture of {len(png)}')
PYTHON
stop_worker 0
echo "ok"
