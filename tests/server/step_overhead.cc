// step_overhead [ROUNDS] [WORK_US] [PAUSE_US] [CLIENT_SPIN_US] [SPIN_MS]: what a STEP over TCP
// costs beyond the engine, at production row sizes (6 rows of 30,720 B), with an engine that takes
// a fixed time and computes nothing, with a hiccup meter before and after. By hand, never in CI:
// times belong to the machine.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "libcore/base/hiccups.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/client/client.h"
#include "libcore/client/synthetic_rows.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/tcp.h"

namespace tp2 {
namespace {

constexpr int kRows = 6;

DrafterConfig ProductionConfig() {
  DrafterConfig config;
  config.dim = 5120;
  config.vocab = 129'280;
  config.window = 128;
  config.target_layers = {1, 2, 3};
  config.heads = 1;
  config.head_dim = 32;
  config.o_groups = 1;
  return config;
}

void Spend(int64_t duration_ns) {
  const SteadyClock clock;
  const int64_t end_ns = clock.NowNs() + duration_ns;
  while (clock.NowNs() < end_ns) {
  }
}

// Copies the rows, as an upload would, and waits as a controller waits for its card.
class TimedEngine final : public StepEngine {
 public:
  explicit TimedEngine(int64_t work_ns) : work_ns_(work_ns) {
    info_.config = ProductionConfig();
    info_.max_positions = 1'000'000;
    info_.mode = "one-card";
    info_.backend = "cpu";
    upload_.resize(kMaxRowsPerMessage * static_cast<size_t>(info_.config.tap_values()));
  }
  const EngineInfo& info() const override { return info_; }
  bool is_healthy() const override { return true; }
  const SlotWindow& window(int slot) const override { return windows_[slot]; }
  absl::Status ResetSlot(int slot, int64_t base) override {
    windows_[slot] = SlotWindow(base);
    return absl::OkStatus();
  }
  absl::Status Insert(const InsertRows& rows) override {
    std::copy(rows.values.begin(), rows.values.end(), upload_.begin());
    windows_[rows.slot].Insert(rows.position, rows.row_count, info_.config.ring_rows());
    return absl::OkStatus();
  }
  absl::StatusOr<StepOutputs> Step(const StepRequest& request) override {
    const SteadyClock clock;
    const int64_t begin_ns = clock.NowNs();
    StepOutputs outputs;
    for (const StepEntry& entry : request.entries) {
      TP2_RETURN_IF_ERROR(Insert(entry.rows));
      outputs.entries.push_back({});
    }
    Spend(work_ns_);
    outputs.draft_ns = clock.NowNs() - begin_ns;
    return outputs;
  }

 private:
  const int64_t work_ns_;
  EngineInfo info_;
  std::array<SlotWindow, kSlotCount> windows_;
  std::vector<Bf16> upload_;
};

struct Options {
  int rounds = 2000;
  int64_t work_us = 2000;
  int64_t pause_us = 0;
  int64_t client_spin_us = 1'000'000;
  int64_t spin_ms = 0;
};

// Of the rounds.
struct Times {
  const std::vector<int64_t>&round_ns, &beyond_ns, &server_us;
};

void Print(const Options& options, const Times& times, const Hiccups& before,
           const Hiccups& after) {
  const auto us = [](const std::vector<int64_t>& ns, int percent) {
    return static_cast<double>(NearestRank(ns, percent)) / 1e3;
  };
  std::printf("%d rounds, engine %ld us, pause %ld us: STEP p50 %.1f us, beyond the engine ",
              options.rounds, options.work_us, options.pause_us, us(times.round_ns, 50));
  std::printf("p50 %.1f us, p99 %.1f us, in the worker p50 %ld us\n", us(times.beyond_ns, 50),
              us(times.beyond_ns, 99), NearestRank(times.server_us, 50));
  std::printf("hiccups before and after: %.2f and %.2f %% lost, longest %.0f and %.0f us\n",
              before.lost_percent, after.lost_percent, before.longest_us, after.longest_us);
}

int Main(const Options& options) {
  spdlog::set_level(spdlog::level::warn);
  const SteadyClock clock;
  TimedEngine engine(options.work_us * 1000);
  server::ServerOptions server_options;
  server_options.spin_ms = options.spin_ms;
  server_options.spin_threads = 1;
  server::StepServer server(&engine, server_options, &clock);
  auto listener = transport::TcpListen({.host = "127.0.0.1", .port = 0},
                                       server::StepServer::RequestRule(server_options))
                      .value();
  const auto address = transport::ParseTcpAddress(listener->address()).value();
  server.Listen(std::move(listener));
  std::thread run([&] { (void)server.Run(); });

  transport::FrameRule rule = client::Client::ReplyRule();
  rule.spin_us = options.client_spin_us;
  client::Client client(transport::TcpConnect(address, rule, 5000).value(), {});
  (void)client.Hello(client::HelloFor(engine.info()));
  const auto opened = client.Open({}).value();
  const uint32_t row_bytes = static_cast<uint32_t>(engine.info().config.tap_values() * 2);
  std::vector<Bf16> rows;
  client::AppendSyntheticRows(
      {.seed = 1, .row_count = kRows, .row_values = engine.info().config.tap_values()}, &rows);

  const Hiccups before = MeasureHiccups(300);
  std::vector<int64_t> beyond_ns, round_ns, server_us;
  for (int round = 0; round < options.rounds; ++round) {
    const uint64_t position = static_cast<uint64_t>(round) * kRows;
    contract::StepMessage step;
    step.entry_count = 1;
    step.n_out = kBlockRows;
    step.flags = contract::kStepWantMargin | contract::kStepWantConfidence;
    step.rows = kRows;
    step.row_bytes = row_bytes;
    step.rows_offset = static_cast<uint32_t>(contract::StepHeadBytes(1));
    step.row_area = std::as_bytes(std::span(rows));
    step.entries[0] = {.slot = opened.value->slot,
                       .rows = kRows,
                       .anchor = 7,
                       .generation = opened.value->generation,
                       .position = position,
                       .anchor_position = position + kRows,
                       .expected_length = position + kRows};
    Spend(options.pause_us * 1000);
    const int64_t begin_ns = clock.NowNs();
    const auto answer = client.Step(step);
    const int64_t spent_ns = clock.NowNs() - begin_ns;
    if (!answer.ok() || answer->code != contract::Code::kOk) {
      std::fprintf(stderr, "STEP %d failed\n", round);
      return 1;
    }
    round_ns.push_back(spent_ns);
    beyond_ns.push_back(spent_ns - int64_t{answer->value->draft_us} * 1000);
    server_us.push_back(static_cast<int64_t>(answer->header.time_us));
  }
  const Hiccups after = MeasureHiccups(300);
  server.BeginDrain();
  server.BeginDrain();
  run.join();
  Print(options, {round_ns, beyond_ns, server_us}, before, after);
  return 0;
}

}  // namespace
}  // namespace tp2

int main(int argc, char** argv) {
  tp2::Options options;
  if (argc > 1) options.rounds = std::atoi(argv[1]);
  if (argc > 2) options.work_us = std::atoll(argv[2]);
  if (argc > 3) options.pause_us = std::atoll(argv[3]);
  if (argc > 4) options.client_spin_us = std::atoll(argv[4]);
  if (argc > 5) options.spin_ms = std::atoll(argv[5]);
  return tp2::Main(options);
}
