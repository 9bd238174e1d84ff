// How large a rank's state is, how its views are made, how it is cleared. Host only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "libcore/collectives/ack_protocol.h"
#include "libcore/collectives/line_protocol.h"
#include "libcore/collectives/operations.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll {

// Which protocol a pair speaks; fixed for its life, the same on every rank.
enum class ProtocolKind { kLine, kAck };

// "line" or "ack".
const char* ProtocolName(ProtocolKind kind);
std::optional<ProtocolKind> FindProtocol(std::string_view name);

// Calls body.template operator()<LineProtocol or AckProtocol>().
template <class Body>
decltype(auto) WithProtocol(ProtocolKind kind, Body&& body) {
  return kind == ProtocolKind::kLine ? body.template operator()<LineProtocol>()
                                     : body.template operator()<AckProtocol>();
}

struct StateSize {
  ProtocolKind protocol = ProtocolKind::kLine;
  int rank_count = 2;
  int64_t max_words = 0;  // of the largest operation: fp32 values of an all-reduce
};

// Of one source and parity; at least what a STEP's exchanges need. Inboxes of 2^31 items and more
// are refused: indices of items have 32 bits.
int64_t ItemCapacity(const StateSize& size);

// Of one rank: 1,314,816 bytes for the ack protocol, 1,751,744 for lines, at two ranks and 163,840
// words.
int64_t StateBytes(const StateSize& size);

// By rank. kInvalidArgument for one of more than kMaxRankTokens.
absl::Status CheckTokenRanges(std::span<const TokenRange> tokens);

struct ViewOptions {
  StateSize size;
  std::span<uint8_t* const> states;     // [rank_count], each StateBytes, aligned to 128
  std::span<const TokenRange> tokens;   // [rank_count], checked; or empty: no exchange will be run
  uint64_t timeout_ns = 2'000'000'000;  // of each wait
  uint32_t max_epoch = kMaxEpoch;
};

RankView MakeRankView(const ViewOptions& options, int rank);

}  // namespace tp2::coll
