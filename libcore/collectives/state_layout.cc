#include "libcore/collectives/state_layout.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace tp2::coll {
namespace {

// Records of an exchange, in either protocol.
constexpr int64_t kMinItems = 128;

}  // namespace

const char* ProtocolName(ProtocolKind kind) {
  return WithProtocol(kind, []<class Protocol> { return Protocol::kName; });
}

std::optional<ProtocolKind> FindProtocol(std::string_view name) {
  for (const ProtocolKind kind : {ProtocolKind::kLine, ProtocolKind::kAck}) {
    if (name == ProtocolName(kind)) return kind;
  }
  return std::nullopt;
}

int64_t ItemCapacity(const StateSize& size) {
  TP2_CHECK(size.rank_count >= 2 && size.rank_count <= kMaxRanks && size.max_words >= 0);
  const int64_t items = WithProtocol(
      size.protocol, [&]<class Protocol> { return ItemsOf<Protocol>(size.max_words); });
  const int64_t capacity = std::max(items, kMinItems);
  TP2_CHECK(2 * (size.rank_count - 1) * capacity <= std::numeric_limits<int32_t>::max());
  return capacity;
}

int64_t StateBytes(const StateSize& size) {
  const int64_t item_bytes =
      WithProtocol(size.protocol, []<class Protocol> { return Protocol::kItemBytes; });
  return kControlBytes + 2 * (size.rank_count - 1) * ItemCapacity(size) * item_bytes;
}

absl::Status CheckTokenRanges(std::span<const TokenRange> tokens) {
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const int64_t count = int64_t{tokens[rank].end} - tokens[rank].begin;
    if (count >= 0 && count <= kMaxRankTokens) continue;
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = absl::StrCat("vocabulary part of rank ", rank),
                      .expected = absl::StrCat("at most ", kMaxRankTokens, " tokens of a rank"),
                      .got = absl::StrCat(count),
                      .next = "use one card: exchanges between ranks have 16 bits for a token"});
  }
  return absl::OkStatus();
}

RankView MakeRankView(const ViewOptions& options, int rank) {
  const int rank_count = options.size.rank_count;
  TP2_CHECK(rank >= 0 && rank < rank_count);
  TP2_CHECK(static_cast<int>(options.states.size()) == rank_count);
  TP2_CHECK(options.tokens.empty() || static_cast<int>(options.tokens.size()) == rank_count);
  TP2_CHECK(CheckTokenRanges(options.tokens).ok());
  RankView view;
  view.rank = rank;
  view.rank_count = rank_count;
  view.item_capacity = static_cast<int32_t>(ItemCapacity(options.size));
  view.timeout_ns = options.timeout_ns;
  view.max_epoch = options.max_epoch;
  std::copy(options.states.begin(), options.states.end(), view.states);
  std::copy(options.tokens.begin(), options.tokens.end(), view.tokens);
  return view;
}

}  // namespace tp2::coll
