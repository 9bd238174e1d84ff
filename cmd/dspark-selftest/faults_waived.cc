// Rows of the fault table that need more than a client: the worker's process, its machine's
// network, a pair of ranks, an RDMA device or a day.
#include "cmd/dspark-selftest/fault_bench.h"

namespace tp2::selftest {

std::vector<Fault> WaivedFaults() {
  constexpr char kProcess[] = "needs the worker's process: tests/serve/faults_test.sh";
  constexpr char kPair[] =
      "needs a pair that fails on demand: tests/serve/pair_faults_test.sh on CPU ranks, "
      "p2p-lifecycle on cards";
  constexpr char kRdma[] = "no RDMA transport in this build";
  return {
      {"F3 client-host-silent", "needs a network to cut: tests/serve/faults_test.sh", nullptr},
      {"F10 fuzz-corpus", "part of every build: tests/contract/frame_corpus_test.cc", nullptr},
      {"F22 rank-1-stalled", kPair, nullptr},
      {"F23 bad-id-from-a-rank",
       "needs a rank that lies: tests/collectives/host_pair_test.cc, pair_gpu_test.cc", nullptr},
      {"F24 strikes", kPair, nullptr},
      {"F25 poison", kPair, nullptr},
      {"F26 epochs-run-out", kPair, nullptr},
      {"F28 restart-under-load", kProcess, nullptr},
      {"F29 sigterm-under-load", kProcess, nullptr},
      {"F30 stopped-and-continued", kProcess, nullptr},
      {"F31 loop-hangs", "needs a service manager: tests/serve/systemd_test.sh", nullptr},
      {"F32 port-taken-and-left", kProcess, nullptr},
      {"F33 log-and-admin-trouble", kProcess, nullptr},
      {"F34 rdma-violations", kRdma, nullptr},
      {"F35 rdma-and-tcp-mixed", kRdma, nullptr},
      {"F36 gid-change", kRdma, nullptr},
      {"F37 a-day", "24 hours: dspark-selftest soak --minutes 1440", nullptr},
      {"F38 clock-jumps", kProcess, nullptr},
      {"F39 F40 interrupted-and-partial-calls", kProcess, nullptr},
  };
}

}  // namespace tp2::selftest
