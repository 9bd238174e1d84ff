#!/usr/bin/env bash
# The first and only process of the RDMA tests' virtual machine: loads soft-RoCE over a dummy link,
# runs everything that needs RDMA, says what came of it and switches the machine off. Of what it
# prints vm.sh reads the lines that begin with "verdict".
set -euo pipefail
export PATH=/bin RDMA_ADDRESS=10.77.0.1 RDMA_LINK=dummy0 RDMA_PEER=/bin/rdma_peer
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /tmp /dev/shm
while read -r module; do
  busybox insmod "/modules/$module" || echo "cannot load $module"
done </modules/order
echo 0 >/proc/sys/kernel/printk # its messages would tear our lines apart
ip link set lo up
ip address add "$RDMA_ADDRESS/24" dev dummy0
ip link set dummy0 up # the module brought it along
rdma link add rxe0 type rxe netdev dummy0

clock() { read -r up _ </proc/uptime && echo "clock $up $*"; }
verdict() { # NAME CODE LOG
  clock "$1"
  if [[ $2 == 0 ]]; then
    echo "verdict PASS $1"
  else
    busybox tail -n 40 "$3"
    echo "verdict FAIL $1"
  fi
}
gtest() { # PROGRAM FILTER NAME
  local code=0
  "/bin/$1" --gtest_filter="$2" >/tmp/gtest.log 2>&1 || code=$?
  busybox sed -n 's/^\[       OK \] \([^ ]*\) (.*$/verdict PASS \1/p
    s/^\[  FAILED  \] \([^ ]*\)\(, .*\)\{0,1\} ([0-9]* ms)$/verdict FAIL \1/p' /tmp/gtest.log
  verdict "$1.$3" "$code" /tmp/gtest.log
}
gtest transport_test '*Verbs' all-cases
gtest rdma_test '-RdmaLink*' all-cases

# The tools as an operator runs them.
busybox head -c 32 /dev/urandom | busybox od -An -tx1 | busybox tr -d ' \n' >/tmp/secret
busybox chmod 600 /tmp/secret
dspark-serve --model /model --backend cpu --threads 2 --max-model-len 4096 --admin off \
  --listen "$RDMA_ADDRESS:18627" --rdma require --allow-clients 10.77.0.0/24 \
  --secret-file /tmp/secret >/tmp/worker.log 2>&1 &
worker=$!
for _ in $(busybox seq 300); do
  if busybox grep -q 'listening on' /tmp/worker.log; then break; fi
  busybox sleep 0.1
done
clock worker
code=0
dspark-selftest contract --server "$RDMA_ADDRESS:18627" --transport rdma --model /model \
  --backend cpu --threads 2 --secret-file /tmp/secret --rounds 2 --latency-rounds 0 \
  >/tmp/contract.log 2>&1 || code=$?
verdict tools.contract-over-rdma "$code" /tmp/contract.log
# A client of another checkpoint.
rdma_peer hold 18627 >/dev/null 2>&1 || true
code=0
busybox grep -q 'RDMA connection .* refused: another identity' /tmp/worker.log || code=$?
verdict tools.another-identity-is-refused-and-logged "$code" /tmp/worker.log
kill -TERM "$worker"
code=0
wait "$worker" || code=$?
verdict tools.drained-worker-ends-with-0 "$code" /tmp/worker.log

gtest rdma_test 'RdmaLink*' link-cases

echo "verdict END"
busybox poweroff -f
