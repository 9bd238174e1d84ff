#!/usr/bin/env bash
# Goal: setup.sh installs exactly what is missing and says what to do where it cannot. Method: a
# scratch tree with the real script and a PATH on which dpkg-query, apt-get and id are ours.
set -euo pipefail

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/path"
cp "$source_root/scripts/setup.sh" "$source_root/scripts/common.sh" "$tree/scripts/"
for name in bash basename dirname grep mkdir cat tail env sed; do
  ln -s "$(command -v "$name")" "$tree/path/$name"
done

# Its own business is to download; here it only says that it was asked, and how that went.
cat >"$tree/scripts/rdma_kernel.sh" <<'TOOL'
#!/bin/bash
echo kernel >>"$CALLS"
exit "$KERNEL_EXIT_CODE"
TOOL
chmod +x "$tree/scripts/rdma_kernel.sh"

tool() { cat >"$tree/path/$1" && chmod +x "$tree/path/$1"; }
tool dpkg-query <<'TOOL'
#!/bin/bash
if [[ " $MISSING " == *" ${*: -1} "* ]]; then echo config-files; else echo installed; fi
TOOL
tool id <<'TOOL'
#!/bin/bash
echo "$USER_ID"
TOOL
apt_get() {
  tool apt-get <<'TOOL'
#!/bin/bash
echo "$DEBIAN_FRONTEND $*" >>"$CALLS"
exit "$APT_EXIT_CODE"
TOOL
}
apt_get

failures=0
# expect NAME EXIT_CODE TEXT CALLS: TEXT in the output; CALLS of apt-get, options left out.
expect() {
  local code=0 calls
  : >"$tree/calls"
  CALLS=$tree/calls PATH=$tree/path bash "$tree/scripts/setup.sh" >"$tree/out" 2>&1 </dev/null ||
    code=$?
  calls=$(sed 's/ -q -y -o DPkg::Lock::Timeout=300//; s/ --no-install-recommends//' "$tree/calls" |
    tr '\n' ';')
  if ((code != $2)) || ! grep -q -- "$3" "$tree/out" || [[ $calls != "$4" ]]; then
    printf '%s: expected exit %d, "%s", calls "%s"; got exit %d, calls "%s" and:\n' \
      "$1" "$2" "$3" "$4" "$code" "$calls"
    cat "$tree/out"
    failures=$((failures + 1))
  fi
}
export MISSING USER_ID APT_EXIT_CODE=0 KERNEL_EXIT_CODE=0
MISSING="" USER_ID=1000
expect "nothing is missing" 0 "packages are installed" "kernel;"
MISSING="ccache libhwy-dev" USER_ID=0
expect "root installs what is missing" 0 "installed 2 packages" \
  "noninteractive update;noninteractive install ccache libhwy-dev;kernel;"
KERNEL_EXIT_CODE=3
expect "no kernel for the virtual machine" 0 "ctest will say that it skipped" \
  "noninteractive update;noninteractive install ccache libhwy-dev;kernel;"
APT_EXIT_CODE=100
expect "no package source" 3 "apt-get update failed" "noninteractive update;"
APT_EXIT_CODE=0 USER_ID=1000
expect "no root and no sudo" 3 "run as root: apt-get install ccache libhwy-dev" ""
rm "$tree/path/apt-get"
expect "not a Debian system" 3 "install the equivalents of: g++ cmake" ""

if ((failures > 0)); then
  echo "setup_test.sh: $failures failures"
  exit 1
fi
echo "setup_test.sh: all cases end as they should"
