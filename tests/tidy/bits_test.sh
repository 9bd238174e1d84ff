#!/usr/bin/env bash
# Goal: bits.sh passes only when every variant prints the same digest. Method: a scratch tree with
# the real script and a cmake that writes a tp2-parity which prints a digest of our choice.
set -euo pipefail

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/path"
cp "$source_root/scripts/bits.sh" "$source_root/scripts/common.sh" "$tree/scripts/"

cat >"$tree/path/cmake" <<'TOOL'
#!/bin/bash
# cmake -S SOURCE -B FOLDER ...: the variant's tool; `--build` finds it already made.
if [[ $1 == -S ]]; then
  mkdir -p "$4/bin"
  digest=0123456789abcdef
  if [[ $(basename "$4") == "$DIFFERING" ]]; then digest=0123456789abcdee; fi
  printf '#!/bin/sh\necho "one-card %s $7"\necho equal\nexit %s\n' "$digest" "$EXIT_CODE" \
    >"$4/bin/tp2-parity"
  chmod +x "$4/bin/tp2-parity"
fi
TOOL
chmod +x "$tree/path/cmake"

# expect NAME EXIT_CODE DIFFERING TOOL_EXIT_CODE TEXT [BITS_SH_ARGUMENT...]
expect() {
  local code=0
  DIFFERING=$3 EXIT_CODE=$4 PATH=$tree/path:$PATH bash "$tree/scripts/bits.sh" --rounds 3 "${@:6}" \
    >"$tree/out" 2>&1 || code=$?
  if ((code != $2)) || ! grep -q "$5" "$tree/out"; then
    echo "$1: expected exit $2 and '$5', got exit $code and:"
    cat "$tree/out"
    exit 1
  fi
}
expect "equal digests" 0 none 0 "OK: 7 variants, one digest"
expect "one variant differs" 1 clang-O3 0 "1 of 7 variants differ from gcc-O1"
expect "first variant differs" 1 gcc-O1 0 "6 of 7 variants differ from gcc-O1"
expect "one variant has another digest than expected" 1 none 0 "1 of 1 variants differ from ffff" \
  --expect ffffffffffffffff gcc-v2
expect "a tool fails" 1 none 1 "tp2-parity of variant gcc-O1 failed"
echo "bits_test.sh: all cases end as they should"
