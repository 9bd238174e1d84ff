#!/bin/sh
# The first and only process of the RDMA tests' virtual machine: loads soft-RoCE over a dummy link,
# runs everything that needs RDMA, says what came of it and switches the machine off. Lines that
# begin with "gtest" or "verdict" are what vm_test.sh reads.
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
ip link add dummy0 type dummy
ip address add "$RDMA_ADDRESS/24" dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
# So that an address that is only assigned is not one that is still being assigned.
busybox sleep 0.2

verdict() { # NAME CODE LOG
  if [ "$2" = 0 ]; then
    echo "verdict PASS $1"
  else
    busybox tail -n 40 "$3"
    echo "verdict FAIL $1"
  fi
}
gtest() { # PROGRAM FILTER
  "/bin/$1" --gtest_filter="$2" >/tmp/gtest.log 2>&1
  code=$?
  busybox sed -n 's/^\[       OK \] \([^ ]*\) (.*$/verdict PASS \1/p
    s/^\[  FAILED  \] \([^ ]*\)\(, .*\)\{0,1\} ([0-9]* ms)$/verdict FAIL \1/p' /tmp/gtest.log
  if [ "$code" != 0 ]; then busybox tail -n 60 /tmp/gtest.log; fi
  verdict "$1.ends-well" "$code" /dev/null
}
gtest transport_test '*Verbs*'
gtest rdma_test '*'

# The tools as an operator runs them.
busybox head -c 32 /dev/urandom | busybox od -An -tx1 | busybox tr -d ' \n' >/tmp/secret
busybox chmod 600 /tmp/secret
serve() { # ARGUMENTS...
  dspark-serve --model /model --backend cpu --threads 1 --listen "$RDMA_ADDRESS:18627" \
    --allow-clients 10.77.0.0/24 --secret-file /tmp/secret --admin off "$@" \
    >/tmp/worker.log 2>&1 &
  worker=$!
  for _ in $(busybox seq 100); do
    busybox grep -q 'listening on' /tmp/worker.log && return
    busybox sleep 0.1
  done
}
selftest() { # COMMAND ARGUMENTS...
  command=$1
  shift
  dspark-selftest "$command" --server "$RDMA_ADDRESS:18627" --model /model --backend cpu \
    --threads 1 --secret-file /tmp/secret "$@"
}
serve --rdma require
selftest contract --transport rdma --rounds 8 --latency-rounds 3 >/tmp/contract.log 2>&1
verdict tools.contract-over-rdma $? /tmp/contract.log
selftest contract --transport tcp --rounds 4 --latency-rounds 0 >/tmp/contract.log 2>&1
verdict tools.contract-over-tcp-beside $? /tmp/contract.log
selftest soak --transport rdma --seconds 3 >/tmp/soak.log 2>&1
verdict tools.soak-over-rdma $? /tmp/soak.log
busybox kill -TERM "$worker"
wait "$worker"
verdict tools.drained-worker-ends-with-0 $? /tmp/worker.log
serve --rdma auto --allow-clients 10.78.0.0/24
selftest rounds --transport rdma --rounds 1 >/tmp/refused.log 2>&1
code=$?
busybox grep -q 'not an allowed network' /tmp/refused.log &&
  busybox grep -q 'RDMA connection .* refused' /tmp/worker.log && [ "$code" = 3 ]
verdict tools.foreign-network-is-refused-by-name $? /tmp/refused.log
busybox kill -KILL "$worker"

echo "verdict END"
busybox poweroff -f
