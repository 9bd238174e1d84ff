// A build without the CUDA half lists the cases and runs none.
#include "cmd/p2p-lifecycle/cases.h"

namespace tp2::lifecycle {

CaseResult RunCase(const CaseInfo& info, const CaseOptions& options) {
  return {Verdict::kWaived, "a build without CUDA", Json::object()};
}

CardCount CountCards() { return {0, "this build has no CUDA half", Json::array()}; }

CaseResult RunProbes(const CaseOptions& options) {
  return {Verdict::kWaived, "a build without CUDA", Json::object()};
}

}  // namespace tp2::lifecycle
