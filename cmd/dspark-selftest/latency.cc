#include "cmd/dspark-selftest/latency.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "libcore/base/clock.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/table.h"

namespace tp2::selftest {
namespace {

constexpr int kRows = 6;

double PercentileMs(const std::vector<int64_t>& times_ns, int percent) {
  return static_cast<double>(NearestRank(times_ns, percent)) / 1e6;
}

absl::Status MeasureCell(Twin* twin, const std::string& transport, int requests, int rounds,
                         std::vector<LatencyLine>* lines) {
  constexpr int64_t kCellLimitNs = 20'000'000'000;
  const SteadyClock clock;
  std::array<TwinSlot, kMaxRequests> slots;
  std::vector<StepPart> parts;
  for (int i = 0; i < requests; ++i) {
    TP2_ASSIGN_OR_RETURN(slots[i], twin->Open(i, 0));
    TP2_RETURN_IF_ERROR(twin->Insert(&slots[i], 0, kMaxRowsPerMessage));
    parts.push_back({&slots[i], slots[i].length, kRows, 1});
  }
  std::vector<int64_t> local_ns;
  std::vector<int64_t> worker_ns;
  std::vector<int64_t> beyond_ns;
  const int64_t begin_ns = clock.NowNs();
  for (int round = 0; round < rounds; ++round) {
    if (round >= 3 && clock.NowNs() - begin_ns > kCellLimitNs) break;
    const BuiltStep step = twin->Build(parts, kBlockRows);
    const int64_t start_ns = clock.NowNs();
    const auto local = twin->StepLocal(parts, step);
    const int64_t middle_ns = clock.NowNs();
    const auto answer = twin->client().Step(step.message);
    const int64_t end_ns = clock.NowNs();
    if (!local.ok()) return local.status();
    if (!answer.ok()) return answer.status();
    TP2_RETURN_IF_ERROR(ExpectCode("STEP", contract::Code::kOk, answer->code));
    local_ns.push_back(middle_ns - start_ns);
    worker_ns.push_back(end_ns - middle_ns);
    beyond_ns.push_back(end_ns - middle_ns - int64_t{answer->value->total_us} * 1000);
    for (StepPart& part : parts) part.position += kRows;
  }
  for (int i = 0; i < requests; ++i) TP2_RETURN_IF_ERROR(twin->Close(slots[i]));
  const auto line = [&](const std::string& path, const std::vector<int64_t>& times_ns) {
    lines->push_back({.path = path,
                      .requests = requests,
                      .rows = kRows,
                      .n_out = kBlockRows,
                      .rounds = static_cast<int>(times_ns.size()),
                      .p50_ms = PercentileMs(times_ns, 50),
                      .p99_ms = PercentileMs(times_ns, 99)});
  };
  line("in-process", local_ns);
  line(transport, worker_ns);
  lines->back().beyond_engine_ms = PercentileMs(beyond_ns, 50);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LatencyLine>> MeasureLatency(Twin* twin, const std::string& transport,
                                                        int rounds) {
  std::vector<LatencyLine> lines;
  for (const int requests : {1, 4}) {
    TP2_RETURN_IF_ERROR(MeasureCell(twin, transport, requests, rounds, &lines));
  }
  return lines;
}

Json LatencyJson(const LatencyLine& line) {
  return {{"path", line.path},     {"requests", line.requests},
          {"rows", line.rows},     {"n_out", line.n_out},
          {"rounds", line.rounds}, {"p50_ms", line.p50_ms},
          {"p99_ms", line.p99_ms}, {"beyond_engine_p50_ms", line.beyond_engine_ms}};
}

std::string RenderLatency(const std::vector<LatencyLine>& lines) {
  Table table({{"path", ""},
               {"requests", "(n)"},
               {"rows", "(n)"},
               {"n_out", "(n)"},
               {"rounds", "(n)"},
               {"p50", "(ms)"},
               {"p99", "(ms)"},
               {"beyond engine", "p50 (ms)"}});
  for (const LatencyLine& line : lines) {
    table.AddRow({line.path, absl::StrCat(line.requests), absl::StrCat(line.rows),
                  absl::StrCat(line.n_out), absl::StrCat(line.rounds), FormatMs(line.p50_ms),
                  FormatMs(line.p99_ms),
                  line.beyond_engine_ms == 0 ? "-" : FormatMs(line.beyond_engine_ms)});
  }
  return table.Render();
}

}  // namespace tp2::selftest
