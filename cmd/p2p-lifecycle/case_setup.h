// What the cases share: pairs by the options, outcomes, error words of all ranks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cmd/p2p-lifecycle/cases.h"
#include "libcore/collectives/cuda/cuda_pair.h"
#include "libcore/collectives/cuda/soak.h"

namespace tp2::lifecycle {

// Blocks of an operation that are resident together with the other rank's, also on one small card.
inline constexpr int kSafeBlocks = 16;

CaseResult Pass(const std::string& reason, Json details = Json::object());
CaseResult Fail(const std::string& reason, Json details = Json::object());
// Passes when `refused` is an error whose text has `word`.
CaseResult PassIfRefused(const absl::Status& refused, const std::string& word);

// By rank: the chosen ones, swapped or doubled as the options say.
absl::StatusOr<std::vector<device::DeviceInfo>> CardsFor(const CaseOptions& options);

struct PairChanges {
  uint64_t timeout_ns = 0;  // 0: the options'
  uint32_t max_epoch = coll::kMaxEpoch;
  std::string protocol = {};  // empty: the options'
};
absl::StatusOr<std::unique_ptr<coll::CudaPair>> MakePair(const CaseOptions& options,
                                                         const PairChanges& changes = {});

coll::ScriptOp SumOf(int64_t count, int blocks = 4);
coll::ScriptOp MarginOf(int requests);
coll::ScriptOp CloseOp();

// Drains and reads the error words of both ranks.
absl::StatusOr<std::array<uint32_t, 2>> ReadErrors(coll::CudaPair& pair);

// A soak that must be exact and without an error; its figures are the details.
absl::StatusOr<CaseResult> ExactSoak(coll::CudaPair& pair, const coll::SoakOptions& options);
// Options of a soak for these cards.
coll::SoakOptions SoakFor(const CaseOptions& options, int64_t collectives);

// Every case's function.
#define TP2_CASE(function, name, report, cards, limit_s, environment, claim) \
  absl::StatusOr<CaseResult> function(const CaseOptions& options);
#define TP2_QUICK_CASES
#define TP2_FULL_CASES
#include "cmd/p2p-lifecycle/case_list.inc"
#undef TP2_QUICK_CASES
#undef TP2_FULL_CASES
#undef TP2_CASE

}  // namespace tp2::lifecycle
