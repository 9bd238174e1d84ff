#!/usr/bin/env bash
# Goal: quickstart.sh ends with the right exit code and leaves no worker and no scratch folder, also
# when a step fails. Method: a scratch tree with the real script, packages already there, a cmake
# that builds nothing, and tools that are short shell scripts with one fault per case.
set -euo pipefail

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bin=$tree/build/dev/bin
mkdir -p "$tree/scripts" "$tree/path" "$bin"
cp "$source_root/scripts/quickstart.sh" "$source_root/scripts/common.sh" "$tree/scripts/"

# tool PATH: writes an executable from standard input.
tool() { cat >"$1" && chmod +x "$1"; }
printf '#!/bin/sh\nexit 0\n' | tool "$tree/scripts/setup.sh"
printf '#!/bin/sh\nexit 0\n' | tool "$tree/path/cmake"

healthy_tools() {
  tool "$bin/dspark-pack" <<'TOOL'
#!/bin/bash
[[ "$1 $2 $3 $4 $5 $6" == "synth --shape tiny --seed 1 --out" ]] && mkdir "$7"
TOOL
  tool "$bin/dspark-serve" <<'TOOL'
#!/bin/bash
[[ "$1 $3 $4 $5 $6" == "--model --listen 127.0.0.1:0 --backend auto" && -d $2 ]] || exit 2
echo $$ >"$(dirname "$0")/worker.pid"
trap 'exit 0' TERM
echo "config 1 ms"
echo "ready 2 ms  listening on 127.0.0.1:45678"
while :; do sleep 0.05; done
TOOL
  tool "$bin/dspark-selftest" <<'TOOL'
#!/bin/bash
[[ "$1 $2 $3 $4" == "contract --server 127.0.0.1:45678 --model" && -d $5 ]] || exit 2
echo "identity PASS"
TOOL
  tool "$bin/tp2-parity" <<'TOOL'
#!/bin/bash
echo "one-card 0123456789abcdef 8"; echo equal
TOOL
}

failures=0
# expect NAME EXIT_CODE TEXT: runs the script from another folder; TEXT must be in its last line.
expect() {
  local code=0 last
  rm -f "$bin/worker.pid"
  (cd / && PATH=$tree/path:$PATH bash "$tree/scripts/quickstart.sh" >"$tree/out" 2>&1) || code=$?
  last=$(tail -n 1 "$tree/out")
  if ((code != $2)) || [[ $last != *"$3"* ]]; then
    printf '%s: expected exit %d and "%s", got exit %d and "%s"\n' "$1" "$2" "$3" "$code" "$last"
    failures=$((failures + 1))
  fi
  if [[ -s $bin/worker.pid ]] && kill -0 "$(<"$bin/worker.pid")" 2>/dev/null; then
    echo "$1: a worker was left behind"
    kill -KILL "$(<"$bin/worker.pid")"
    failures=$((failures + 1))
  fi
  if compgen -G "$tree/build/quickstart/run.*" >/dev/null; then
    echo "$1: a scratch folder was left behind"
    failures=$((failures + 1))
  fi
}

healthy_tools
expect "healthy tools" 0 "OK: the worker drafted for a client and stopped cleanly"
expect "second run" 0 "OK: the worker drafted for a client and stopped cleanly"

printf '#!/bin/sh\necho "port taken" >&2\nexit 3\n' | tool "$bin/dspark-serve"
expect "worker ends while starting" 1 "the worker ended while starting"

healthy_tools
printf '#!/bin/sh\necho "rollback FAIL"\nexit 1\n' | tool "$bin/dspark-selftest"
expect "client fails" 1 "the client's checks failed"

healthy_tools
printf '#!/bin/sh\necho differ\nexit 1\n' | tool "$bin/tp2-parity"
expect "digests differ" 1 "drafts differ between two runs"

healthy_tools
sed -i "s/trap 'exit 0' TERM/trap 'exit 4' TERM/" "$bin/dspark-serve"
expect "worker ends with a fault" 1 "the worker ended with exit code 4 after SIGTERM"

healthy_tools
printf '#!/bin/sh\nexit 1\n' | tool "$tree/path/cmake"
expect "build fails" 1 "failed"

if ((failures > 0)); then
  echo "quickstart_test.sh: $failures failures"
  exit 1
fi
echo "quickstart_test.sh: all cases end as they should"
