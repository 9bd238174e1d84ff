#!/usr/bin/env bash
# bundle.sh: one archive with all that a GPU machine needs, which has a driver, glibc and libstdc++
# but no toolchain: the tools, the GPU tests, the tests that pin CPU bits, the golden vectors and
# gpu_qualify.sh.
#
# usage: scripts/bundle.sh [--out FILE]
#   --out FILE   default build/dspark-tp2-bundle.tar.gz
#
# On the GPU machine: unpack into an empty folder, run ./gpu_qualify.sh there.
# Exit codes: 0 done, 1 the build failed, 2 usage.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

archive=$repo_root/build/dspark-tp2-bundle.tar.gz
while (($# > 0)); do
  case $1 in
    --out)
      if (($# < 2)); then fail 2 "$1 needs a value"; fi
      archive=$2
      shift
      ;;
    -h | --help) print_help "$0"; exit 0 ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
  esac
  shift
done

binaries=(gpu_test drafter_gpu_test drafter_one_card_pair_test drafter_pair_test
  collectives_gpu_test pair_test exl3_test math_test
  tp2-parity tp2-bench tp2-tune dspark-pack dspark-serve dspark-selftest p2p-lifecycle run-owned)
configure_and_build bundle "${binaries[@]}"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
for binary in "${binaries[@]}"; do
  strip -o "$stage/$binary" "$repo_root/build/bundle/bin/$binary"
done
# Shared objects travel, but for those that every machine with a C++ program on it has.
ldd "${binaries[@]/#/$stage/}" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so' | xargs cp -Lt "$stage/"
mkdir "$stage/golden"
cp -r "$repo_root/tests/golden/v41-tiny" "$stage/golden/"
cp "$repo_root/scripts/gpu_qualify.sh" "$stage/"
tar -C "$stage" -czf "$archive" .
glibc=$(objdump -T "${binaries[@]/#/$stage/}" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
say "$archive: $(stat -c %s "$archive") bytes, needs ${glibc/_/ } and an NVIDIA driver for CUDA 13"
