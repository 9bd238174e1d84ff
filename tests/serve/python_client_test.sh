#!/usr/bin/env bash
# The Python client as its reader meets it: all checks pass, with and without a secret; what README
# shows runs as it stands there; wrong secrets, addresses and checkpoints have their exit codes.
#
# usage: python_client_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
readonly bin=$1 source=$2 golden=$2/tests/golden/v41-tiny python=/usr/bin/python3
# shellcheck source=tests/serve/worker.sh
source "$2/tests/serve/worker.sh"

client() { # EXPECTED_CODE ARGUMENTS...
  local expected=$1 code=0
  shift
  "$python" "$source/scripts/dspark_client.py" contract "$@" >"$scratch/client.log" 2>&1 || code=$?
  [[ $code == "$expected" ]] || fail "dspark_client.py $* ended with $code, not $expected"
}

start_worker "$golden"
client 0 "$address"
grep -q '^PASS  rounds-bit-identical$' "$scratch/client.log" || fail "no rounds"
client 0 "$address" --rounds 1 --identity "$(sed -n 's/^identity *//p' "$scratch/worker.log")"
client 3 "$address" --identity 00
client 3 127.0.0.1:1
client 2 nowhere

"$python" - "$source/README.md" "$address" >"$scratch/example.py" <<'PYTHON'
import re, sys
text = open(sys.argv[1]).read()
block = re.search(r'## Drafting from Python.*?```python\n(.*?)```', text, re.S).group(1)
assert len(block.splitlines()) <= 15, 'README promises 15 lines'
assert '127.0.0.1:18627' in block
print(block.replace('127.0.0.1:18627', sys.argv[2]))
PYTHON
PYTHONPATH=$source/scripts "$python" "$scratch/example.py" >"$scratch/example.log" 2>&1 ||
  fail "the example of README does not run"
[[ $(grep -c -- '->' "$scratch/example.log") == 4 ]] || fail "the example did not draft four times"
stop_worker 0

openssl rand -hex 32 >"$scratch/secret"
openssl rand -hex 32 >"$scratch/other"
chmod 600 "$scratch/secret" "$scratch/other"
start_worker "$golden" --secret-file "$scratch/secret"
client 0 "$address" --secret-file "$scratch/secret"
client 3 "$address" --secret-file "$scratch/other"
grep -q 'HELLO NOT_AUTHORIZED' "$scratch/client.log" || fail "the wrong secret was not refused"
client 3 "$address"
grep -q 'HELLO CHALLENGE' "$scratch/client.log" || fail "no secret was not refused"
chmod 644 "$scratch/other"
client 2 "$address" --secret-file "$scratch/other"
# The secret shows up nowhere but in its file.
if grep -qF "$(cat "$scratch/secret")" "$scratch"/*.log; then fail "the secret is in a log"; fi
if tr '\0' ' ' <"/proc/$worker/cmdline" | grep -qF "$(cat "$scratch/secret")"; then
  fail "the secret is among the arguments"
fi
stop_worker 0
echo "ok"
