#include "libcore/collectives/host_pair.h"

#include "libcore/base/check.h"
#include "libcore/collectives/operations.h"

namespace tp2::coll {
namespace {

StateSize SizeOf(const HostPairOptions& options) {
  return {.protocol = options.protocol, .rank_count = 2, .max_words = options.max_values};
}

}  // namespace

HostPair::HostPair(const HostPairOptions& options) : options_(options), states_(SizeOf(options)) {
  for (int rank = 0; rank < 2; ++rank) {
    views_[rank] = MakeRankView({.size = SizeOf(options),
                                 .states = states_.pointers(),
                                 .tokens = options_.tokens,
                                 .timeout_ns = options.timeout_ns,
                                 .max_epoch = options.max_epoch},
                                rank);
  }
}

bool HostPair::AllReduce(int rank, const float* half, int64_t count, float* sum) {
  TP2_CHECK(count <= options_.max_values);
  return WithProtocol(options_.protocol, [&]<class Protocol> {
    return coll::AllReduce<Protocol>(
        sys_, views_[rank], static_cast<int32_t>(count), [half](int64_t i) { return half[i]; },
        [sum](int64_t i, float value) { sum[i] = value; });
  });
}

bool HostPair::Exchange(int rank, TopTwo* best, int count) {
  return WithProtocol(options_.protocol, [&]<class Protocol> {
    TP2_CHECK(count <= views_[rank].item_capacity);
    return coll::Exchange<Protocol, BestTwoRecord>(
        sys_, views_[rank], count, [best](int64_t i) { return best[i]; },
        [best](int64_t i, const TopTwo& joined) { best[i] = joined; });
  });
}

bool HostPair::CloseStep(int rank) {
  return WithProtocol(options_.protocol, [&]<class Protocol> {
    return coll::CloseStep<Protocol>(sys_, views_[rank]);
  });
}

void HostPair::Cancel() {
  for (const RankView& view : views_) sys_.StoreRelease(&OwnHeader(view)->status.cancel, 1);
}

uint32_t HostPair::error(int rank) const { return sys_.LoadStatus(OwnHeader(views_[rank])).error; }

void HostPair::Reset() { states_.Reset(); }

}  // namespace tp2::coll
