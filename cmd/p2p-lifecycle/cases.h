// The cases of p2p-lifecycle: what they are called, what they claim, and how they ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace tp2::lifecycle {

enum class Verdict { kPass, kFail, kWaived };
const char* VerdictName(Verdict verdict);

struct CaseResult {
  Verdict verdict = Verdict::kFail;
  std::string reason;
  Json details = Json::object();
};

struct CaseOptions {
  std::vector<std::string> gpus;  // UUID prefixes by rank; empty: the first two cards
  bool is_single_card = false;
  bool is_swapped = false;
  std::string protocol = "line";
  int cycles = 2;
  int64_t collectives = 1'000'000;  // of the soak
  int64_t max_words = 163840;
  uint64_t seed = 1;
  int timeout_ms = 2000;  // DSPARK_TP_TIMEOUT_MS
  std::string model_dir;  // of the case with a drafter; empty: it is waived
};

struct CaseInfo {
  const char* name;
  const char* report;
  int cards;
  int limit_s;
  const char* environment;  // "NAME=value" for the child, or empty
  const char* claim;        // of a waived case: why
  bool is_quick;
  bool is_waived;
};

const std::vector<CaseInfo>& AllCases();
// Null when there is none.
const CaseInfo* FindCase(const std::string& name);

// Runs a case in this process. A build without CUDA has none that can run.
CaseResult RunCase(const CaseInfo& info, const CaseOptions& options);

// How many cards can be used, or why none: one line.
struct CardCount {
  int count = 0;
  std::string why_none;
  Json cards = Json::array();
};
CardCount CountCards();

// The probes P1 to P9; fails as a case does.
CaseResult RunProbes(const CaseOptions& options);

}  // namespace tp2::lifecycle
