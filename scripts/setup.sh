#!/usr/bin/env bash
# setup.sh: installs the Debian packages that building and testing need; the only place that does.
#
# usage: scripts/setup.sh [--list]
#   --list   print the package names and install nothing
#
# Installs only what is missing, so a second run changes nothing and needs neither root nor network.
# The kernel of the RDMA tests is downloaded, not installed, and nothing but those tests needs it.
# The CUDA toolkit is optional and never installed here: without nvcc everything but the CUDA op
# set builds.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools=(g++ cmake ninja-build ccache git pkg-config python3 python3-numpy
  clang clang-tidy clang-format libclang-rt-14-dev shellcheck strace)
# libibverbs and librdmacm are the RDMA transport, a choice; the rest has one line per find_package
# or pkg_check_modules in scripts/cmake/Tp2Packages.cmake.
libraries=(libabsl-dev libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libspdlog-dev libxxhash-dev
  libssl-dev libhwy-dev prometheus-cpp-dev libibverbs-dev librdmacm-dev)
# The model checkers of tests/collectives/model are spin and relacy-dev; Boost's fibers run kernels.
test_libraries=(libgtest-dev libgmock-dev libbenchmark-dev relacy-dev spin libboost-context-dev)
# Soft-RoCE in a virtual machine: tests/rdma/vm.sh.
virtual_machine=(qemu-system-x86 busybox-static cpio kmod iproute2 ibverbs-providers)
packages=("${tools[@]}" "${libraries[@]}" "${test_libraries[@]}" "${virtual_machine[@]}")

case "${1-}" in
  "") ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  -h | --help) print_help "$0"; exit 0 ;;
  *) fail 2 "unknown argument '$1'; see --help" ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail 3 "expected Debian 12 or a system with apt-get, found neither dpkg-query nor apt-get;" \
    "install the equivalents of: ${packages[*]}"
fi

fetch_kernel() {
  "$repo_root/scripts/rdma_kernel.sh" ||
    say "no kernel for the RDMA tests: ctest will say that it skipped them"
}

missing=()
for package in "${packages[@]}"; do
  # A removed package with its configuration left behind is known to dpkg too: ask for the state.
  state=$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  if ! grep -qx installed <<<"$state"; then missing+=("$package"); fi
done
if ((${#missing[@]} == 0)); then
  say "all ${#packages[@]} packages are installed"
  fetch_kernel
  exit 0
fi

as_root=()
if (($(id -u) != 0)); then
  command -v sudo >/dev/null ||
    fail 3 "installing packages needs root, and sudo is not here;" \
      "run as root: apt-get install ${missing[*]}"
  as_root=(sudo)
  # Without a terminal nobody could type a password: fail instead of waiting for one.
  if [[ ! -t 0 ]]; then as_root=(sudo -n); fi
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)

say "installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
log=$(log_file setup)
"${apt[@]}" update >"$log" 2>&1 </dev/null ||
  { tail -n 20 "$log" >&2; fail 3 "apt-get update failed; check network and package sources"; }
"${apt[@]}" install --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null ||
  { tail -n 20 "$log" >&2; fail 3 "apt-get install failed; the whole log is $log"; }
say "installed ${#missing[@]} packages"
fetch_kernel
