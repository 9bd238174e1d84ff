#include "cmd/dspark-selftest/stress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"

namespace tp2::selftest {
namespace {

using contract::Code;
using contract::Type;

struct Usage {
  double rss_kib = 0;
  int descriptors = 0;
};

// Zeros without a pid or where /proc does not show it.
Usage UsageOf(int pid) {
  Usage usage;
  if (pid == 0) return usage;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) usage.rss_kib = std::strtod(line.c_str() + 6, nullptr);
  }
  std::error_code error;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    ++usage.descriptors;
  }
  return usage;
}

// A plausible or senseless body for the type, a few of its bytes changed.
std::vector<std::byte> FuzzBody(uint16_t type, const TwinSlot& slot, Rng* rng) {
  std::vector<std::byte> body;
  if (type == static_cast<uint16_t>(Type::kOpen)) {
    body.resize(contract::kOpenBytes);
    contract::EncodeOpenRequest({.base = rng->Below(50)}, body);
  } else if (type == static_cast<uint16_t>(Type::kClose)) {
    body.resize(contract::kCloseBytes);
    contract::EncodeCloseRequest({.slot = slot.slot, .generation = slot.generation}, body);
  } else if (type == static_cast<uint16_t>(Type::kStep)) {
    contract::StepMessage step;
    step.entry_count = 1;
    step.rows_offset = static_cast<uint32_t>(contract::StepHeadBytes(1));
    step.entries[0] = {.slot = slot.slot, .generation = slot.generation};
    body.resize(contract::StepHeadBytes(1));
    EncodeStepHead(step, body);
  } else {
    body.resize(rng->Below(3) == 0 ? rng->Below(300) : 0);
  }
  if (body.empty()) return body;
  for (uint64_t change = rng->Below(4); change > 0; --change) {
    body[rng->Below(body.size())] = static_cast<std::byte>(rng->Next());
  }
  return body;
}

// One frame: mostly well framed, so that it gets past the checksum; sometimes plain noise.
std::vector<std::byte> FuzzFrame(client::Client* client, const TwinSlot& slot, Rng* rng) {
  contract::FrameHeader header;
  header.type = static_cast<uint16_t>(rng->Below(16) == 0 ? rng->Next() : 1 + rng->Below(9));
  header.session = rng->Below(16) == 0 ? rng->Next() : client->session();
  const bool is_unsequenced = header.type == static_cast<uint16_t>(Type::kHealth) ||
                              header.type == static_cast<uint16_t>(Type::kPing);
  header.seq = is_unsequenced ? 0 : client->NextHeader(Type::kSlots).seq;
  if (rng->Below(64) == 0) header.seq = rng->Next();
  if (rng->Below(64) == 0) header.flags = static_cast<uint32_t>(rng->Next());
  if (rng->Below(16) == 0) header.time_us = rng->Below(100);
  const std::vector<std::byte> body = FuzzBody(header.type, slot, rng);
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::vector<std::byte> frame(contract::kHeaderBytes + body.size());
  contract::EncodeHeader(header, frame);
  std::copy(body.begin(), body.end(), frame.begin() + contract::kHeaderBytes);
  if (rng->Below(64) == 0) frame[rng->Below(frame.size())] ^= std::byte{0x10};
  return frame;
}

double SlopePerHour(const std::vector<double>& values, double seconds_each) {
  const double n = static_cast<double>(values.size());
  if (n < 2) return 0;
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(i) * seconds_each / 3600;
    sum_x += x;
    sum_y += values[i];
    sum_xx += x * x;
    sum_xy += x * values[i];
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

Json UsageJson(const Usage& usage) {
  return {{"rss_kib", usage.rss_kib}, {"descriptors", usage.descriptors}};
}

// One member of the crowd: connects and misbehaves in turn until told to stop.
void Misbehave(FaultBench* bench, int index, const std::atomic<bool>* is_over) {
  Rng rng(static_cast<uint64_t>(index));
  while (!is_over->load()) {
    absl::StatusOr<std::unique_ptr<client::Client>> client = bench->Stranger();
    if (client.ok()) {
      contract::FrameHeader header = (*client)->NextHeader(Type::kHello);
      header.body_bytes = contract::kHelloBytes;
      std::vector<std::byte> frame(contract::kHeaderBytes + contract::kHelloBytes);
      contract::EncodeHeader(header, frame);
      // A part of a HELLO, then gone; or a PING whose answer nobody reads.
      (void)SendRaw(client->get(), std::span(frame).first(rng.Below(frame.size())));
      if (rng.Below(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Hiccups MeasureHiccups(int64_t duration_ms) {
  constexpr int64_t kGapNs = 50'000;
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  const int64_t end_ns = begin_ns + duration_ms * 1'000'000;
  int64_t last_ns = begin_ns, lost_ns = 0, longest_ns = 0;
  while (last_ns < end_ns) {
    const int64_t now_ns = clock.NowNs();
    const int64_t gap_ns = now_ns - last_ns;
    if (gap_ns > kGapNs) lost_ns += gap_ns;
    longest_ns = std::max(longest_ns, gap_ns);
    last_ns = now_ns;
  }
  return {.lost_percent =
              100.0 * static_cast<double>(lost_ns) / static_cast<double>(last_ns - begin_ns),
          .longest_us = static_cast<double>(longest_ns) / 1e3};
}

Json HiccupJson(const Hiccups& hiccups) {
  return {{"lost_percent", hiccups.lost_percent}, {"longest_us", hiccups.longest_us}};
}

absl::StatusOr<Json> RunFuzz(FaultBench* bench, const StressOptions& options) {
  constexpr int64_t kCheckEvery = 2'000;
  Rng rng(options.seed);
  std::unique_ptr<client::Client> client;
  TwinSlot slot;
  int64_t connections = 0, replies = 0, checks = 0;
  const Usage before = UsageOf(options.worker_pid);
  const int64_t begin_ns = bench->NowNs();
  for (int64_t i = 0; i < options.frames; ++i) {
    if (client == nullptr) {
      TP2_ASSIGN_OR_RETURN(client, bench->Session());
      ++connections;
      const auto opened = client->Open({});
      if (!opened.ok()) return opened.status();
      if (opened->value.has_value()) {
        slot = {.slot = opened->value->slot, .generation = opened->value->generation};
      }
    }
    const std::vector<std::byte> frame = FuzzFrame(client.get(), slot, &rng);
    const bool is_sent = SendRaw(client.get(), frame).ok();
    const absl::StatusOr<client::RawReply> reply = client->Receive();
    replies += reply.ok() ? 1 : 0;
    if (!is_sent || !reply.ok() || contract::ClosesConnection(reply->code())) client.reset();
    if (i % kCheckEvery == 0) {
      TP2_RETURN_IF_ERROR(bench->PayerP50(1).status());
      ++checks;
    }
  }
  client.reset();
  const double seconds = static_cast<double>(bench->NowNs() - begin_ns) / 1e9;
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  TP2_RETURN_IF_ERROR(bench->PayerP50(20).status());
  return Json{{"frames", options.frames},
              {"connections", connections},
              {"replies", replies},
              {"seconds", seconds},
              {"frames_per_s", static_cast<double>(options.frames) / seconds},
              {"payer_checks", checks + 20},
              {"payer_wrong", 0},
              {"before", UsageJson(before)},
              {"after", UsageJson(UsageOf(options.worker_pid))}};
}

absl::StatusOr<Json> RunLoad(FaultBench* bench, const StressOptions& options) {
  constexpr int kActive = 4;  // threads that keep connecting; the rest sits there
  TP2_RETURN_IF_ERROR(bench->PayerP50(options.steps / 4).status());  // warm
  const Hiccups hiccups_before = MeasureHiccups(300);
  TP2_ASSIGN_OR_RETURN(const double alone_ms, bench->PayerP50(options.steps));
  std::vector<std::unique_ptr<client::Client>> crowd;
  for (int i = 0; i < options.connections; ++i) {
    absl::StatusOr<std::unique_ptr<client::Client>> client = bench->Stranger();
    if (!client.ok()) return client.status();
    crowd.push_back(std::move(client).value());
  }
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kActive; ++i) {
    threads.emplace_back([&, i] { Misbehave(bench, i, &is_over); });
  }
  const absl::StatusOr<double> beside_ms = bench->PayerP50(options.steps);
  is_over.store(true);
  for (std::thread& thread : threads) thread.join();
  if (!beside_ms.ok()) return beside_ms.status();
  crowd.clear();
  TP2_ASSIGN_OR_RETURN(const double after_ms, bench->PayerP50(options.steps));
  const Hiccups hiccups_after = MeasureHiccups(300);
  return Json{{"connections", options.connections},
              {"steps", options.steps},
              {"payer_p50_ms", {{"alone", alone_ms}, {"beside", *beside_ms}, {"after", after_ms}}},
              {"change_percent", 100 * (*beside_ms / ((alone_ms + after_ms) / 2) - 1)},
              {"hiccups_before", HiccupJson(hiccups_before)},
              {"hiccups_after", HiccupJson(hiccups_after)}};
}

absl::StatusOr<Json> RunSoak(FaultBench* bench, const StressOptions& options) {
  const int64_t begin_ns = bench->NowNs();
  const Usage before = UsageOf(options.worker_pid);
  std::vector<double> rss_kib, p50_ms;
  int64_t rounds = 0, sessions = 0;
  constexpr double kSampleSeconds = 5;
  while (static_cast<double>(bench->NowNs() - begin_ns) / 1e9 <
         static_cast<double>(options.seconds)) {
    const int64_t sample_ns = bench->NowNs();
    std::vector<double> times;
    // STEPs at full rate, and every so often a client that comes and goes.
    while (static_cast<double>(bench->NowNs() - sample_ns) / 1e9 < kSampleSeconds) {
      TP2_ASSIGN_OR_RETURN(const double ms, bench->PayerP50(50));
      times.push_back(ms);
      rounds += 50;
      TP2_RETURN_IF_ERROR(bench->NewTenant().status());
      ++sessions;
    }
    std::sort(times.begin(), times.end());
    p50_ms.push_back(times[times.size() / 2]);
    rss_kib.push_back(UsageOf(options.worker_pid).rss_kib);
  }
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  const Usage after = UsageOf(options.worker_pid);
  // The first fifth is still warming up caches and allocators.
  const std::vector<double> settled(rss_kib.begin() + static_cast<ptrdiff_t>(rss_kib.size() / 5),
                                    rss_kib.end());
  return Json{{"seconds", options.seconds},
              {"rounds", rounds},
              {"wrong_rounds", 0},
              {"sessions", sessions},
              {"before", UsageJson(before)},
              {"after", UsageJson(after)},
              {"rss_slope_kib_per_hour", SlopePerHour(settled, kSampleSeconds)},
              {"rss_kib", rss_kib},
              {"p50_ms", p50_ms}};
}

}  // namespace tp2::selftest
