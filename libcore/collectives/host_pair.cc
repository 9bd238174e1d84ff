#include "libcore/collectives/host_pair.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace tp2::coll {
namespace {

constexpr int kWordsPerBest = 4;  // two scores, two tokens
constexpr int kLinesPerBest = 2;

int64_t LinesOf(int64_t value_count) { return (value_count + kLineValues - 1) / kLineValues; }

bool IsFrom(TokenRange range, Scored candidate) {
  return candidate.token == kNoScore.token ||
         (candidate.token >= range.begin && candidate.token < range.end);
}

std::array<uint32_t, kLinesPerBest * kLineValues> Words(const TopTwo& best) {
  return {std::bit_cast<uint32_t>(best.first.score), std::bit_cast<uint32_t>(best.first.token),
          std::bit_cast<uint32_t>(best.second.score), std::bit_cast<uint32_t>(best.second.token)};
}

TopTwo FromWords(const std::array<uint32_t, kLinesPerBest * kLineValues>& words) {
  static_assert(kWordsPerBest <= kLinesPerBest * kLineValues);
  return {{std::bit_cast<float>(words[0]), std::bit_cast<int32_t>(words[1])},
          {std::bit_cast<float>(words[2]), std::bit_cast<int32_t>(words[3])}};
}

}  // namespace

std::string ErrorText(uint32_t error_bits) {
  struct Bit {
    uint32_t bit;
    const char* text;
  };
  static constexpr Bit kBits[] = {{kLocalTimeout, "local timeout"},
                                  {kPeerTimeout, "peer timeout"},
                                  {kInvalidId, "invalid token id"},
                                  {kCancelled, "cancelled"},
                                  {kEpochExhausted, "epochs exhausted"}};
  std::string text;
  for (const Bit& bit : kBits) {
    if ((error_bits & bit.bit) != 0) absl::StrAppend(&text, text.empty() ? "" : ", ", bit.text);
  }
  return text;
}

HostPair::HostPair(const HostPairOptions& options) : options_(options) {
  const int64_t capacity = std::max<int64_t>(LinesOf(options.max_values), 64);
  for (std::vector<Line>& inbox : inboxes_) inbox.resize(static_cast<size_t>(2 * capacity));
  for (int rank = 0; rank < 2; ++rank) {
    RankView& view = views_[rank];
    view.own = &headers_[rank];
    view.peer = &headers_[1 - rank];
    view.inbox = inboxes_[rank].data();
    view.peer_inbox = inboxes_[1 - rank].data();
    view.line_capacity = capacity;
    view.timeout_ns = options.timeout_ns;
    view.max_epoch = options.max_epoch;
  }
}

bool HostPair::AllReduce(int rank, const float* half, int64_t count, float* sum) {
  RankView& view = views_[rank];
  const int64_t lines = LinesOf(count);
  TP2_CHECK(lines <= view.line_capacity);
  if (!BeginOperation(sys_, view)) return false;
  for (int64_t i = 0; i < lines; ++i) {
    std::array<uint32_t, kLineValues> payload{};
    for (int64_t j = 0; j < kLineValues && i * kLineValues + j < count; ++j) {
      payload[j] = std::bit_cast<uint32_t>(half[i * kLineValues + j]);
    }
    Push(sys_, view, i, payload.data());
  }
  const uint64_t start_ns = sys_.NowNs();
  for (int64_t i = 0; i < lines; ++i) {
    Line line;
    if (!Await(sys_, view, i, start_ns, line)) return false;
    for (int64_t j = 0; j < kLineValues && i * kLineValues + j < count; ++j) {
      const float own = half[i * kLineValues + j];
      const float other = std::bit_cast<float>(line.payload[j]);
      // BITS: rank order, so that a NaN's payload is the same on both ranks too.
      sum[i * kLineValues + j] = rank == 0 ? own + other : other + own;
    }
  }
  return true;
}

bool HostPair::Exchange(int rank, TopTwo* best, int count) {
  RankView& view = views_[rank];
  TP2_CHECK(int64_t{count} * kLinesPerBest <= view.line_capacity);
  if (!BeginOperation(sys_, view)) return false;
  for (int i = 0; i < count; ++i) {
    const auto words = Words(best[i]);
    for (int part = 0; part < kLinesPerBest; ++part) {
      Push(sys_, view, i * kLinesPerBest + part, words.data() + part * kLineValues);
    }
  }
  const uint64_t start_ns = sys_.NowNs();
  for (int i = 0; i < count; ++i) {
    std::array<uint32_t, kLinesPerBest * kLineValues> words;
    for (int part = 0; part < kLinesPerBest; ++part) {
      Line line;
      if (!Await(sys_, view, i * kLinesPerBest + part, start_ns, line)) return false;
      std::copy_n(line.payload, kLineValues, words.data() + part * kLineValues);
    }
    const TopTwo other = FromWords(words);
    const TokenRange range = options_.tokens[1 - rank];
    if (!IsFrom(range, other.first) || !IsFrom(range, other.second)) {
      Fail(sys_, view, kInvalidId, kInvalidId);
      return false;
    }
    best[i] = rank == 0 ? Merge(best[i], other) : Merge(other, best[i]);
  }
  return true;
}

bool HostPair::CloseStep(int rank) { return coll::CloseStep(sys_, views_[rank]); }

void HostPair::Cancel() {
  for (Header& header : headers_) sys_.StoreRelease(&header.cancel, 1);
}

uint32_t HostPair::error(int rank) const { return sys_.LoadAcquire(&headers_[rank].error); }

absl::Status HostPair::Reset() {
  if (views_[0].generation == kMaxGeneration) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {.what = "collective pair",
                      .expected = absl::StrCat("at most ", kMaxGeneration, " resets"),
                      .got = "one more",
                      .where = "",
                      .next = "restart the process"});
  }
  for (int rank = 0; rank < 2; ++rank) {
    headers_[rank] = {};
    std::fill(inboxes_[rank].begin(), inboxes_[rank].end(), Line{});
    ++views_[rank].generation;
    views_[rank].epoch = 0;
  }
  return absl::OkStatus();
}

}  // namespace tp2::coll
