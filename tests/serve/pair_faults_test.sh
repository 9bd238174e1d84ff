#!/usr/bin/env bash
# Rows of the fault table that need a pair which fails on demand: dspark-serve's own sources over
# two CPU ranks (tests/support/faulty_engine.cc). A rank that comes late, cancelled collectives,
# three strikes, poison, epochs that run out. On two cards: p2p-lifecycle.
#
# usage: pair_faults_test.sh BIN_DIR SOURCE_DIR [RESULT_FILE]
#   RESULT_FILE  also writes the rows as JSON; an existing file is not overwritten
set -euo pipefail
bin=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
readonly bin source_dir golden=$source_dir/tests/golden/v41-tiny python=/usr/bin/python3
readonly result=${3-} serve=faulty_serve
# shellcheck source=tests/serve/worker.sh
source "$source_dir/tests/serve/worker.sh"
# shellcheck source=tests/serve/rows.sh
source "$source_dir/tests/serve/rows.sh"
cd "$scratch"

# ends_with EXPECTED_CODE: sets `spent` to the ms until the worker is gone.
ends_with() {
  local began code=0
  began=$(now_ms)
  wait "$worker" || code=$?
  spent=$(($(now_ms) - began))
  worker=
  [[ $code == "$1" ]] || fail "the worker ended with $code, not $1"
}

# F26: every check of the contract, the bits of one card's drafts among them, while the epochs run
# out every 25 STEPs.
start_worker "$golden" --threads 2
"$bin/dspark-selftest" contract --server "$address" --model "$golden" --backend cpu --threads 1 \
  --latency-rounds 0 >client.log 2>&1 || fail "the contract over a pair"
row F26 epochs-run-out "$(grep -c ^PASS client.log)" "contract checks passed, STEPs lost: 0"

# F22: rank 1 comes later than rank 0 waits (2 s); the next STEPs draft what they always did.
client rounds "$address" 8 >before
ms=$(client fail "$address" late 1)
((ms < 10000)) || fail "a late rank was answered after $ms ms"
row F22 rank-1-stalled "$ms" "ms to INTERNAL (the ranks wait 2,000)"
client rounds "$address" 8 >after
cmp before after || fail "other drafts after a late rank"

# F24: two failures, a success, two failures: it stays. Three: it ends with 4.
for _ in 1 2; do client fail "$address" cancel 2 >/dev/null; done
client rounds "$address" 8 >after
cmp before after || fail "other drafts after cancelled STEPs"
client fail "$address" cancel 3 >/dev/null
ends_with 4
row F24 strikes "$spent" "ms from the third failure to exit 4"

# F25: poison: refused at once, and gone without hanging.
rm -f fault
start_worker "$golden" --threads 2
client fail "$address" poison 1 >/dev/null
ends_with 4
((spent < 10000)) || fail "a poisoned worker took $spent ms to end"
row F25 poison "$spent" "ms from UNHEALTHY to exit 4"
finish_rows
