#include "libcore/parity/compare_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/build_info.h"
#include "libcore/base/digest.h"
#include "libcore/parity/near_tie.h"

namespace tp2 {
namespace {

constexpr size_t kShownMismatches = 20;
constexpr Verdict kDifferences[] = {Verdict::kNearTie, Verdict::kRouting, Verdict::kUnexplained};

std::string AgreementText(const std::string& what, const Agreement& agreement) {
  std::string text =
      absl::StrFormat("%-24s  %6d  %6d  %6.1f  %7.2f ", what, agreement.blocks, agreement.exact,
                      agreement.ExactPercent(), agreement.MeanPrefix());
  for (int i = 0; i < kBlockRows; ++i) {
    if (agreement.asked[i] == 0) {
      absl::StrAppendFormat(&text, "  %5s", "-");
      continue;
    }
    absl::StrAppendFormat(
        &text, "  %5.1f",
        100.0 * static_cast<double>(agreement.equal[i]) / static_cast<double>(agreement.asked[i]));
  }
  return text + "\n";
}

std::string MismatchText(const Mismatch& m) {
  std::string text = absl::StrFormat(
      "%-11s  round %d block %d position %d: %d, engine %d; our gap %.4g", VerdictName(m.verdict),
      m.round, m.block, m.position, m.ours, m.theirs, m.our_gap);
  if (m.their_gap >= 0) absl::StrAppendFormat(&text, ", engine's %.4g", m.their_gap);
  absl::StrAppendFormat(&text, ", tied below %.4g", m.threshold);
  if (m.route_stage >= 0) {
    absl::StrAppendFormat(&text, "; other experts from stage %d on, scores %.4g apart",
                          m.route_stage, m.route_gap);
  }
  return text + "\n";
}

std::string WindowText(const CompareReport& report, const WindowResult& window) {
  std::string text = absl::StrFormat(
      "# window %s: %d rounds, %.1f rounds/s; %% of drafts equal at positions 0 to 4\n"
      "# %-22s  %6s  %6s  %6s  %7s   %5d  %5d  %5d  %5d  %5d\n",
      CaptureWindowName(window.window), window.rounds,
      static_cast<double>(window.rounds) / std::max(window.seconds, 1e-9), "drafts of", "blocks",
      "exact", "%", "prefix", 0, 1, 2, 3, 4);
  absl::StrAppend(&text, AgreementText(report.mode + " vs engine", window.engine));
  if (window.has_reference) {
    absl::StrAppend(&text, AgreementText(report.mode + " vs one-card", window.reference),
                    AgreementText("one-card vs engine", window.reference_engine));
  }
  absl::StrAppendFormat(&text, "noise        sigma %.4g of %d %s (at most %.4g)\n",
                        window.noise.measured, window.noise.samples, window.noise.source,
                        window.noise.limit);
  if (window.noise.route_sigma > 0) {
    absl::StrAppendFormat(&text, "routing      sigma %.4g of the scores, tied below %.4g\n",
                          window.noise.route_sigma, RouteThreshold(window.noise.route_sigma));
  }
  if (window.confidence.samples > 0) {
    absl::StrAppendFormat(
        &text, "confidence   median difference %.4g, largest %.4g, spread %.4g, %d samples\n",
        window.confidence.median_difference, window.confidence.largest_difference,
        window.confidence.spread, window.confidence.samples);
  }
  absl::StrAppendFormat(&text, "verdicts     exact %d, near-tie %d, routing %d, unexplained %d\n",
                        window.Count(Verdict::kExact), window.Count(Verdict::kNearTie),
                        window.Count(Verdict::kRouting), window.Count(Verdict::kUnexplained));
  // Unexplained ones first: they are what somebody has to look at.
  std::vector<Mismatch> shown = window.mismatches;
  std::stable_sort(shown.begin(), shown.end(), [](const Mismatch& a, const Mismatch& b) {
    return a.verdict == Verdict::kUnexplained && b.verdict != Verdict::kUnexplained;
  });
  for (size_t i = 0; i < std::min(shown.size(), kShownMismatches); ++i) {
    absl::StrAppend(&text, MismatchText(shown[i]));
  }
  if (shown.size() > kShownMismatches) {
    absl::StrAppend(&text, "and ", shown.size() - kShownMismatches, " more, see --json\n");
  }
  for (const std::string& failure : window.Failures()) {
    absl::StrAppend(&text, "FAIL         ", failure, "\n");
  }
  return text;
}

Json AgreementJson(const Agreement& agreement) {
  return {{"blocks", agreement.blocks},
          {"exact", agreement.exact},
          {"exact_pct", agreement.ExactPercent()},
          {"mean_prefix", agreement.MeanPrefix()},
          {"equal_at_position", agreement.equal},
          {"asked_at_position", agreement.asked}};
}

Json MismatchJson(const Mismatch& m) {
  Json json = {
      {"round", m.round},       {"block", m.block},         {"slot", m.slot},
      {"position", m.position}, {"ours", m.ours},           {"engine", m.theirs},
      {"our_gap", m.our_gap},   {"threshold", m.threshold}, {"verdict", VerdictName(m.verdict)},
      {"engine_gap", nullptr},  {"route_stage", nullptr},   {"route_gap", nullptr}};
  if (m.their_gap >= 0) json["engine_gap"] = m.their_gap;
  if (m.route_stage >= 0) {
    json["route_stage"] = m.route_stage;
    json["route_gap"] = m.route_gap;
  }
  return json;
}

Json WindowJson(const WindowResult& window) {
  Json mismatches = Json::array();
  for (const Mismatch& mismatch : window.mismatches) mismatches.push_back(MismatchJson(mismatch));
  Json json = {{"window", CaptureWindowName(window.window)},
               {"rounds", window.rounds},
               {"promises_equal_bits", window.promises_equal_bits},
               {"value_differences", window.value_differences},
               {"seconds", window.seconds},
               {"engine", AgreementJson(window.engine)},
               {"one_card", nullptr},
               {"one_card_engine", nullptr},
               {"noise",
                {{"source", window.noise.source},
                 {"sigma", window.noise.sigma},
                 {"measured", window.noise.measured},
                 {"limit", window.noise.limit},
                 {"samples", window.noise.samples},
                 {"route_sigma", window.noise.route_sigma}}},
               {"confidence",
                {{"samples", window.confidence.samples},
                 {"median_difference", window.confidence.median_difference},
                 {"largest_difference", window.confidence.largest_difference},
                 {"spread", window.confidence.spread}}},
               {"verdicts",
                {{"exact", window.Count(Verdict::kExact)},
                 {"near_tie", window.Count(Verdict::kNearTie)},
                 {"routing", window.Count(Verdict::kRouting)},
                 {"unexplained", window.Count(Verdict::kUnexplained)}}},
               {"mismatches", mismatches},
               {"failures", window.Failures()}};
  if (window.has_reference) {
    json["one_card"] = AgreementJson(window.reference);
    json["one_card_engine"] = AgreementJson(window.reference_engine);
  }
  return json;
}

std::string XmlText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// `failure` empty: passed.
std::string TestCase(const std::string& suite, const std::string& name,
                     const std::string& failure) {
  const std::string open =
      absl::StrCat("    <testcase classname=\"", XmlText(suite), "\" name=\"", XmlText(name), "\"");
  if (failure.empty()) return open + "/>\n";
  return absl::StrCat(open, "><failure message=\"", XmlText(failure), "\"/></testcase>\n");
}

std::string WindowJUnit(const WindowResult& window, int& tests, int& failures) {
  const std::string suite = absl::StrCat("window ", CaptureWindowName(window.window));
  std::string cases;
  const auto add = [&](const std::string& name, const std::string& failure) {
    cases += TestCase(suite, name, failure);
    ++tests;
    failures += !failure.empty();
  };
  for (const Verdict verdict : kDifferences) {
    std::string failure;
    for (const Mismatch& mismatch : window.mismatches) {
      if (verdict == Verdict::kUnexplained && mismatch.verdict == verdict) {
        failure += MismatchText(mismatch);
      }
    }
    add(absl::StrCat(VerdictName(verdict), ": ", window.Count(verdict), " blocks"), failure);
  }
  for (const std::string& failure : window.Failures()) {
    if (failure.find("unexplained mismatches") == std::string::npos) add("checks", failure);
  }
  return absl::StrCat("  <testsuite name=\"", suite, "\">\n", cases, "  </testsuite>\n");
}

}  // namespace

bool CompareReport::has_passed() const {
  return std::all_of(windows.begin(), windows.end(),
                     [](const WindowResult& window) { return window.Failures().empty(); });
}

std::string CompareText(const CompareReport& report) {
  std::string text =
      absl::StrFormat("# tp2-parity run: %s, %s, capture %s by %s\n", report.mode,
                      report.engine.backend, report.capture_dir, report.capture.engine);
  if (!report.mutation.empty()) {
    absl::StrAppend(&text, "# deliberate fault: ", report.mutation, "\n");
  }
  for (const WindowResult& window : report.windows) {
    absl::StrAppend(&text, WindowText(report, window));
  }
  return absl::StrCat(text, report.has_passed() ? "explained" : "unexplained", "\n");
}

Json CompareJson(const CompareReport& report) {
  const BuildInfo info = GetBuildInfo();
  Json windows = Json::array();
  for (const WindowResult& window : report.windows) windows.push_back(WindowJson(window));
  return {{"schema", "tp2-parity/1"},
          {"tool", {{"version", info.version}, {"git", info.git_id}}},
          {"mode", report.mode},
          {"backend", report.engine.backend},
          {"mutation", report.mutation.empty() ? Json(nullptr) : Json(report.mutation)},
          {"numerics_version", report.engine.numerics_version},
          {"portable_bits", report.engine.portable_bits},
          {"model_identity", Hex(report.engine.identity_digest)},
          {"capture", {{"dir", report.capture_dir}, {"engine", report.capture.engine}}},
          {"windows", windows},
          {"verdict", report.has_passed() ? "explained" : "unexplained"}};
}

std::string CompareJUnit(const CompareReport& report) {
  int tests = 0, failures = 0;
  std::string suites;
  for (const WindowResult& window : report.windows) suites += WindowJUnit(window, tests, failures);
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tp2-parity\" ", "tests=\"",
      tests, "\" failures=\"", failures, "\">\n", suites, "</testsuites>\n");
}

}  // namespace tp2
