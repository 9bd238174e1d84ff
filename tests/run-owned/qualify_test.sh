#!/usr/bin/env bash
# The part `owned` of gpu_qualify.sh with the built run-owned: a scratch bundle in which
# libnvidia-ml.so.1 is ours, found as the driver's is, and the bench is a stand-in.
#
# usage: qualify_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
fail() {
  echo "FAIL: $1"
  cat "$bundle/log" "$bundle"/out/*.log "$bundle"/out/logs/*.log
  exit 1
}
tool() {  # tool NAME: its body comes from stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$bundle/$1"
  chmod +x "$bundle/$1"
}
mkdir "$bundle/path"
cp "$2/scripts/gpu_qualify.sh" "$1/run-owned" "$bundle/"
cp "$1/fake_nvml.so" "$bundle/libnvidia-ml.so.1"
readonly rest=1111-2222-3333-444455556666
cat >"$bundle/libnvidia-ml.so.1.script" <<SCRIPT
cards = 2
card0.uuid = GPU-7744b44b-$rest
card1.uuid = GPU-c4e7a371-$rest
card0.links = 1
card0.link0.crc_data = 3,5,8
SCRIPT
tool path/nvidia-smi <<TOOL
if [[ \$* != *query-gpu* ]]; then exit 0; fi
for card in 7744b44b c4e7a371; do
  echo "Fake, GPU-\$card-$rest, 580, 00:06.0, 1 MiB, 7 W, 8 W, 345 MHz, 3 MHz, 198 MHz, 36, 0x1"
done
TOOL
tool dspark-pack <<'TOOL'
exit 0
TOOL
tool tp2-bench <<'TOOL'
if [[ $* == *--version* ]]; then echo "tp2-bench 0.1.0"; exit 0; fi
echo "cards $CUDA_VISIBLE_DEVICES"
if [[ $* == *--replays* ]]; then exec sleep 120; fi
TOOL
PATH=$bundle/path:$PATH "$bundle/gpu_qualify.sh" --only owned --out "$bundle/out" \
  >"$bundle/log" 2>&1 || fail "the qualification"
out=$bundle/out
grep -qx "cards GPU-7744b44b-$rest,GPU-c4e7a371-$rest" "$out/owned_run.log" || fail "rank order"
grep -q '"verdict": "permit_withdrawn"' "$out/owned_withdrawn_run.log.summary.json" ||
  fail "verdict of the second run"
grep -q '"link_errors": [1-9]' "$out/owned_run.log.summary.json" || fail "link counters"
grep -q '"schema":"tp2-telemetry/1"' "$out/owned_run.log.telemetry.jsonl" || fail "telemetry"
[[ ! -e $out/PAIR_OK ]] || fail "the permit stays"
if pgrep -f "$bundle/" >/dev/null; then fail "something is left"; fi
echo "qualify_test.sh: all holds"
