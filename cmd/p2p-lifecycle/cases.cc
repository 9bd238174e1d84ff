#include "cmd/p2p-lifecycle/cases.h"

namespace tp2::lifecycle {

const char* VerdictName(Verdict verdict) {
  return verdict == Verdict::kPass ? "PASS" : verdict == Verdict::kFail ? "FAIL" : "WAIVED";
}

const std::vector<CaseInfo>& AllCases() {
#define TP2_WAIVED(name, report, why) {name, report, 1, 0, "", why, false, true},
  static const std::vector<CaseInfo> cases = {
#define TP2_CASE(function, name, report, cards, limit_s, environment, claim) \
  {name, report, cards, limit_s, environment, claim, true, false},
#define TP2_QUICK_CASES
#include "cmd/p2p-lifecycle/case_list.inc"
#undef TP2_QUICK_CASES
#undef TP2_CASE
#define TP2_CASE(function, name, report, cards, limit_s, environment, claim) \
  {name, report, cards, limit_s, environment, claim, false, false},
#define TP2_FULL_CASES
#define TP2_WAIVED_CASES
#include "cmd/p2p-lifecycle/case_list.inc"
#undef TP2_FULL_CASES
#undef TP2_WAIVED_CASES
#undef TP2_CASE
  };
#undef TP2_WAIVED
  return cases;
}

const CaseInfo* FindCase(const std::string& name) {
  for (const CaseInfo& info : AllCases()) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

}  // namespace tp2::lifecycle
