#!/usr/bin/env bash
# rdma_kernel.sh: fetches the kernel of the RDMA tests' virtual machine (tests/rdma), Debian's own.
#
# usage: scripts/rdma_kernel.sh
#
# The package is downloaded and unpacked, never installed; build/rdma-kernel keeps vmlinuz, the
# modules that soft-RoCE needs and the order to load them in. Does nothing when they are there.
# scripts/setup.sh calls it. Exit codes: 0 done, 3 no such package or no package source.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [[ ${1-} == -h || ${1-} == --help ]]; then print_help "$0"; exit 0; fi
if (($# > 0)); then fail 2 "unknown argument '$1'; see --help"; fi

kept=$repo_root/build/rdma-kernel
# Soft-RoCE computes its checksums through the crypto layer, which finds this one only when loaded.
modules=(crc32_generic rdma_rxe rdma_ucm ib_uverbs dummy)
if [[ -f $kept/order ]]; then
  say "the kernel is there"
  exit 0
fi
log=$(log_file rdma-kernel)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt downloads as a user of its own
package=$(apt-cache depends linux-image-amd64 2>"$log" | sed -n 's/^ *Depends: //p' | head -n 1)
if [[ -z $package ]]; then fail 3 "no package linux-image-amd64; is it Debian on x86-64?"; fi
(cd "$work" && apt-get -q download "$package") >>"$log" 2>&1 ||
  { tail -n 5 "$log" >&2; fail 3 "cannot download $package"; }
dpkg-deb -x "$work"/*.deb "$work/root" >>"$log" 2>&1 || fail 3 "cannot unpack $package"
version=${package#linux-image-}
# Without this modprobe does not know what depends on what.
depmod -b "$work/root" "$version" >>"$log" 2>&1
rm -rf "$kept"
mkdir -p "$kept/modules"
cp "$work/root/boot/vmlinuz-$version" "$kept/vmlinuz"
for module in "${modules[@]}"; do
  modprobe -d "$work/root" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/paths"
while read -r path; do cp "$path" "$kept/modules/"; done <"$work/paths"
# Last: whoever sees it sees everything.
sed 's|.*/||' "$work/paths" >"$work/order"
cp "$work/order" "$kept/order"
say "$package: $(wc -l <"$kept/order") modules"
