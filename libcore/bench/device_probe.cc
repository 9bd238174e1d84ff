#include "libcore/bench/device_probe.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "libcore/base/clock.h"
#include "libcore/base/percentile.h"
#include "libcore/base/thread_pool.h"

namespace tp2::bench {
namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 20;
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int kCopies = 5;
// Where the system does not tell the size of its last cache.
constexpr int64_t kAssumedCacheBytes = int64_t{64} << 20;

class HostProbe : public DeviceProbe {
 public:
  const std::optional<CardFacts>& card() const override { return card_; }

  absl::StatusOr<double> CopyGbPerS() override {
    const SteadyClock clock;
    std::vector<std::byte> from(kCopyBytes, std::byte{1}), to(kCopyBytes);
    std::vector<int64_t> times_ns;
    for (int copy = 0; copy <= kCopies; ++copy) {
      const int64_t start_ns = clock.NowNs();
      pool_.ParallelFor(kCopyBytes / kPieceBytes, [&](int64_t piece) {
        std::memcpy(to.data() + piece * kPieceBytes, from.data() + piece * kPieceBytes,
                    kPieceBytes);
      });
      if (copy > 0) times_ns.push_back(clock.NowNs() - start_ns);
    }
    return 2.0 * static_cast<double>(kCopyBytes) / static_cast<double>(NearestRank(times_ns, 50));
  }

  absl::Status FlushCache() override {
    if (flush_.empty()) {
      const int64_t cache_bytes = std::max<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
      flush_.resize(2 * (cache_bytes > 0 ? cache_bytes : kAssumedCacheBytes));
    }
    ++flush_value_;
    std::fill(flush_.begin(), flush_.end(), flush_value_);
    return absl::OkStatus();
  }

 private:
  std::optional<CardFacts> card_;
  ThreadPool pool_;
  std::vector<uint8_t> flush_;
  uint8_t flush_value_ = 0;
};

}  // namespace

std::unique_ptr<DeviceProbe> MakeHostProbe() { return std::make_unique<HostProbe>(); }

}  // namespace tp2::bench
