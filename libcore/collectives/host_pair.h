// Two ranks in one process, each driven by a thread of its own, joined by the protocol: the pair's
// collectives without cards. What the device kernels compute, this computes: one fp32 addition in
// rank order and one rounding, the best two of both vocabulary parts.
#pragma once

#include <array>
#include <cstdint>

#include "libcore/collectives/host_state.h"
#include "libcore/collectives/host_sys.h"
#include "libcore/collectives/protocol.h"
#include "libcore/collectives/state_layout.h"
#include "libcore/math/argmax.h"

namespace tp2::coll {

struct HostPairOptions {
  ProtocolKind protocol = ProtocolKind::kLine;
  int64_t max_values = 0;            // floats of the largest all-reduce
  std::array<TokenRange, 2> tokens;  // as CheckTokenRanges wants
  uint64_t timeout_ns = uint64_t{2} * 1000 * 1000 * 1000;
  uint32_t max_epoch = kMaxEpoch;
};

// Thread-safe in this sense: operations of rank r are called by r's thread alone; Cancel by any;
// Reset and error words while both ranks are idle.
class HostPair {
 public:
  explicit HostPair(const HostPairOptions& options);

  // sum[i] = half of rank 0 [i] + half of rank 1 [i], fp32. `sum` may be `half`. False: refused or
  // failed, `sum` is not to be used.
  bool AllReduce(int rank, const float* half, int64_t count, float* sum);

  // best[i] = best two of both ranks' best[i]. Every candidate the peer sends must be a token of
  // its part or none at all.
  bool Exchange(int rank, TopTwo* best, int count);

  // Ends a STEP; see protocol.h.
  bool CloseStep(int rank);

  // Ends waits of both ranks; the pair refuses until Reset.
  void Cancel();

  uint32_t error(int rank) const;

  // Clears errors, cancellation, epochs and inboxes and starts the next generation. Both ranks must
  // be idle: what was stored before has then arrived, and nothing of 16 generations ago is left for
  // a repeated tag to match.
  void Reset();

 private:
  HostPairOptions options_;
  HostStates states_;
  HostSys sys_;
  std::array<RankView, 2> views_;
};

}  // namespace tp2::coll
