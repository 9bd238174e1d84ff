#!/usr/bin/env bash
# vm.sh: runs the tests of the RDMA transport on soft-RoCE in a virtual machine.
#
# usage: vm.sh BIN_DIR SOURCE_DIR OUT_DIR
#   OUT_DIR  gets console.log and verdicts: one line "PASS NAME" or "FAIL NAME" for each case
#
# Needs what scripts/setup.sh installs and the kernel of scripts/rdma_kernel.sh. Works without KVM,
# only slower. VM_ACCEL=tcg does without it, VM_SECONDS (default 300) bounds the whole run.
# Exit codes: 0 everything was run (verdict.sh says how it went), 1 it was not, 77 skipped, with the
# reason as the last line.
set -euo pipefail
bin=$(readlink -f "$1")
source_dir=$(readlink -f "$2")
mkdir -p "$3"
out=$(readlink -f "$3")
kernel=$source_dir/build/rdma-kernel
rm -f "$out/verdicts" "$out/console.log"
skip() {
  printf 'SKIPPED: %s\n' "$*" | tee "$out/verdicts"
  exit 77
}

[[ $(uname -m) == x86_64 ]] || skip "the virtual machine is x86-64"
for tool in qemu-system-x86_64 busybox cpio ip rdma ldd strip; do
  command -v "$tool" >/dev/null || skip "$tool is missing; run scripts/setup.sh"
done
[[ -f $kernel/order ]] || skip "no kernel; run scripts/rdma_kernel.sh, which downloads one"
provider=$(find /usr/lib -name 'librxe-rdmav*.so' 2>/dev/null | head -n 1)
[[ -n $provider ]] || skip "the soft-RoCE provider is missing; run scripts/setup.sh"
[[ -x $bin/rdma_test ]] || skip "rdma_test is not built: libibverbs-dev or librdmacm-dev is missing"
if ldd "$bin/rdma_test" | grep -q 'lib[at]san'; then skip "a sanitizer build"; fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,modules,model,usr/bin,etc/libibverbs.d}
ours=(transport_test rdma_test rdma_peer dspark-serve dspark-selftest)
for tool in "${ours[@]}"; do strip -o "$root/bin/$tool" "$bin/$tool"; done
theirs=()
for tool in bash ip rdma; do
  theirs+=("$(readlink -f "$(command -v "$tool")")")
  cp "${theirs[-1]}" "$root/bin/$tool"
done
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
ln -s ../../bin/busybox "$root/usr/bin/env"
# libgcc_s is opened by the C library itself when a thread is cancelled or exits.
{
  ldd "${ours[@]/#/$bin/}" "${theirs[@]}" "$provider" |
    awk '/=> \// { print $3 } /^\t\// { print $1 }'
  find /usr/lib -name 'libgcc_s.so.1' | head -n 1
  echo "$provider"
} | sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
cp "$kernel"/modules/*.ko "$kernel/order" "$root/modules/"
golden=$source_dir/tests/golden/v41-tiny
cp "$golden"/{config.json,model.safetensors,model.safetensors.index.json} "$root/model/"
cp "$source_dir/tests/rdma/guest.sh" "$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$out/initramfs"

# boot ACCELERATOR SECONDS [QEMU_ARGUMENT...]
boot() {
  local accelerator=$1 seconds=$2 cpu=max
  shift 2
  # Not every host lets its guests set what this one needs.
  if [[ $accelerator == kvm ]]; then cpu+=,-arch-capabilities; fi
  timeout "$seconds" qemu-system-x86_64 -accel "$accelerator" -cpu "$cpu" -smp 2 -m 2048 \
    -nic none -display none -serial "file:$out/console.log" -monitor none -no-reboot \
    -kernel "$kernel/vmlinuz" -append "console=ttyS0 quiet panic=-1" "$@" \
    >"$out/qemu.log" 2>&1 </dev/null || true
}
# There are machines whose KVM starts a guest and never gets anywhere with it. A kernel without a
# root file system panics within a second or two, or KVM is not used.
kvm_works() {
  [[ ${VM_ACCEL-} != tcg && -w /dev/kvm ]] || return 1
  boot kvm 5
  grep -qs 'Kernel panic' "$out/console.log"
}
began=$SECONDS accelerator=tcg
if kvm_works; then accelerator=kvm; fi
boot "$accelerator" "${VM_SECONDS:-300}" -initrd "$out/initramfs"
rm -f "$out/initramfs"
tr -d '\r' <"$out/console.log" | sed -n 's/^verdict //p' >"$out/verdicts"
if ! grep -qx END "$out/verdicts"; then
  tail -n 40 "$out/qemu.log" "$out/console.log"
  echo "FAIL vm: it did not come to its end in $((SECONDS - began)) s"
  exit 1
fi
sed -i '/^END$/d' "$out/verdicts"
cat "$out/verdicts"
echo "$(grep -c ^PASS "$out/verdicts") passed in $((SECONDS - began)) s with $accelerator"
if grep -q ^FAIL "$out/verdicts"; then tr -d '\r' <"$out/console.log" | tail -n 200; fi
