#include "cmd/p2p-lifecycle/case_setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/pair_latch.h"
#include "libcore/device/select.h"

namespace tp2::lifecycle {
namespace {

constexpr int kTokens = 64768;  // a rank's part of the vocabulary

}  // namespace

CaseResult Pass(const std::string& reason, Json details) {
  return {Verdict::kPass, reason, std::move(details)};
}
CaseResult Fail(const std::string& reason, Json details) {
  return {Verdict::kFail, reason, std::move(details)};
}

CaseResult PassIfRefused(const absl::Status& refused, const std::string& word) {
  const std::string text(refused.message());
  if (refused.ok()) return Fail("accepted");
  if (text.find(word) == std::string::npos) return Fail("refused for another reason: " + text);
  return Pass("refused: " + text);
}

absl::StatusOr<std::vector<device::DeviceInfo>> CardsFor(const CaseOptions& options) {
  std::vector<device::DeviceInfo> cards;
  for (const std::string& uuid : options.gpus) {
    TP2_ASSIGN_OR_RETURN(device::DeviceInfo card, device::SelectDevice(uuid));
    cards.push_back(std::move(card));
  }
  if (cards.empty()) {
    TP2_ASSIGN_OR_RETURN(cards, device::ListDevices());
  }
  if (options.is_single_card && !cards.empty()) cards.assign(2, cards.front());
  if (cards.size() < 2) {
    return MakeError(absl::StatusCode::kUnavailable, {.what = "cards",
                                                      .expected = "two",
                                                      .got = absl::StrCat(cards.size()),
                                                      .next = "use --single-card"});
  }
  cards.resize(2);
  if (options.is_swapped) std::swap(cards[0], cards[1]);
  return cards;
}

absl::StatusOr<std::unique_ptr<coll::CudaPair>> MakePair(const CaseOptions& options,
                                                         const PairChanges& changes) {
  coll::CudaPairOptions pair;
  TP2_ASSIGN_OR_RETURN(pair.cards, CardsFor(options));
  const std::string name = changes.protocol.empty() ? options.protocol : changes.protocol;
  pair.protocol = coll::FindProtocol(name).value_or(coll::ProtocolKind::kLine);
  pair.max_words = options.max_words;
  pair.tokens = {{0, kTokens}, {kTokens, 2 * kTokens}};
  pair.timeout_ns = changes.timeout_ns > 0 ? changes.timeout_ns
                                           : static_cast<uint64_t>(options.timeout_ms) * 1'000'000;
  pair.max_epoch = changes.max_epoch;
  return coll::CudaPair::Create(pair);
}

coll::ScriptOp SumOf(int64_t count, int blocks) {
  coll::ScriptOp op;
  op.count = count;
  op.grid = {blocks, 256};
  return op;
}
coll::ScriptOp MarginOf(int requests) {
  coll::ScriptOp op;
  op.kind = coll::OpKind::kBestTwo;
  op.count = requests;
  return op;
}
coll::ScriptOp CloseOp() {
  coll::ScriptOp op;
  op.kind = coll::OpKind::kClose;
  return op;
}

absl::StatusOr<std::array<uint32_t, 2>> ReadErrors(coll::CudaPair& pair) {
  TP2_RETURN_IF_ERROR(pair.Drain());
  std::array<uint32_t, 2> errors = {};
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(const coll::Status status, pair.ReadStatus(rank));
    errors[rank] = status.error;
  }
  return errors;
}

coll::SoakOptions SoakFor(const CaseOptions& options, int64_t collectives) {
  coll::SoakOptions soak;
  soak.seed = options.seed;
  soak.collectives = collectives;
  soak.script.max_words = options.max_words;
  soak.script.max_blocks = options.is_single_card ? kSafeBlocks : 128;
  return soak;
}

absl::StatusOr<CaseResult> ExactSoak(coll::CudaPair& pair, const coll::SoakOptions& options) {
  TP2_ASSIGN_OR_RETURN(const coll::SoakResult soak, coll::RunSoak(pair, options));
  const Json details = {{"collectives", soak.collectives},   {"steps", soak.steps},
                        {"closed_steps", soak.closed_steps}, {"wrong", soak.wrong},
                        {"error_bits", soak.error_bits},     {"seconds", soak.seconds}};
  const std::string text =
      absl::StrFormat("%d collectives, %d wrong, %d of %d STEPs closed, %.1f s", soak.collectives,
                      soak.wrong, soak.closed_steps, soak.steps, soak.seconds);
  if (soak.error_bits != 0) return Fail(text + ", " + coll::ErrorText(soak.error_bits), details);
  if (soak.wrong != 0 || soak.closed_steps != soak.steps) return Fail(text, details);
  return Pass(text, details);
}

CardCount CountCards() {
  CardCount cards;
  const absl::StatusOr<std::vector<device::DeviceInfo>> found = device::ListDevices();
  if (!found.ok()) {
    cards.why_none = std::string(found.status().message());
    return cards;
  }
  for (const device::DeviceInfo& card : *found) {
    if (card.capability < device::kMinCapability) continue;
    ++cards.count;
    cards.cards.push_back({{"uuid", card.uuid}, {"name", card.name}, {"sm", card.capability}});
  }
  return cards;
}

CaseResult RunCase(const CaseInfo& info, const CaseOptions& options) {
  const std::string name = info.name;
  absl::StatusOr<CaseResult> result = absl::NotFoundError(name);
#define TP2_CASE(function, case_name, report, cards, limit_s, environment, claim) \
  if (name == case_name) result = function(options);
#define TP2_QUICK_CASES
#define TP2_FULL_CASES
#include "cmd/p2p-lifecycle/case_list.inc"
#undef TP2_QUICK_CASES
#undef TP2_FULL_CASES
#undef TP2_CASE
  if (result.ok()) return *std::move(result);
  return Fail(std::string(result.status().message()));
}

}  // namespace tp2::lifecycle
