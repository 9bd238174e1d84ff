#include "cmd/dspark-selftest/stress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libcore/base/percentile.h"
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

// The head of a frame whose body is announced and never ends.
std::vector<std::byte> HalfFrame(client::Client* client, Type type, uint32_t body_bytes) {
  contract::FrameHeader header = client->NextHeader(type);
  header.flags = 0;
  header.body_bytes = body_bytes;
  std::vector<std::byte> frame(contract::kHeaderBytes + body_bytes / 2);
  contract::EncodeHeader(header, frame);
  return frame;
}

// One way to misbehave, from a connection that ends with it. The worker may refuse any of it.
void MisbehaveOnce(FaultBench* bench, uint64_t way) {
  constexpr uint32_t kInsertBytes = 64 << 10;
  constexpr std::chrono::milliseconds kSilence(300);
  absl::StatusOr<std::unique_ptr<client::Client>> client =
      way < 2 ? bench->Stranger() : bench->Session();
  if (!client.ok()) return;
  switch (way) {
    case 0:  // a part of a HELLO, then gone
      (void)SendRaw(client->get(), HalfFrame(client->get(), Type::kHello, contract::kHelloBytes));
      return;
    case 1:  // the same, then silence
      (void)SendRaw(client->get(), HalfFrame(client->get(), Type::kHello, contract::kHelloBytes));
      std::this_thread::sleep_for(kSilence);
      return;
    case 2:  // gone in the middle of an INSERT's rows, with a slot open if there was one
      (void)(*client)->Open({});
      (void)SendRaw(client->get(), HalfFrame(client->get(), Type::kInsert, kInsertBytes));
      return;
    default: {  // asks and reads no answer
      std::vector<std::byte> segment;
      const std::vector<std::byte> payload(contract::kMaxPingBytes);
      for (int i = 0; i < 100; ++i) {
        const std::vector<std::byte> frame = NextFrame(client->get(), Type::kPing, payload);
        segment.insert(segment.end(), frame.begin(), frame.end());
      }
      (void)SendRaw(client->get(), segment);
      std::this_thread::sleep_for(kSilence);
    }
  }
}

// A part of the crowd: misbehaves in turn until told to stop. Returns how often it did.
int64_t Misbehave(FaultBench* bench, uint64_t seed, const std::atomic<bool>* is_over) {
  Rng rng(seed);
  int64_t count = 0;
  for (; !is_over->load(); ++count) {
    MisbehaveOnce(bench, rng.Below(4));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return count;
}

// The crowd of one round of load: connections that say nothing, and four that misbehave.
class Crowd {
 public:
  static absl::StatusOr<std::unique_ptr<Crowd>> Gather(FaultBench* bench, int connections) {
    constexpr uint64_t kActive = 4;
    auto crowd = std::make_unique<Crowd>();
    for (int i = 0; i < connections; ++i) {
      TP2_ASSIGN_OR_RETURN(crowd->silent_.emplace_back(), bench->Stranger());
    }
    for (uint64_t i = 0; i < kActive; ++i) {
      crowd->active_.emplace_back(
          [bench, i, raw = crowd.get()] { raw->misdeeds_ += Misbehave(bench, i, &raw->is_over_); });
    }
    return crowd;
  }
  ~Crowd() { (void)Leave(); }
  int64_t Leave() {
    is_over_.store(true);
    for (std::thread& thread : active_) thread.join();
    active_.clear();
    silent_.clear();
    return misdeeds_.load();
  }

 private:
  std::vector<std::unique_ptr<client::Client>> silent_;
  std::atomic<bool> is_over_{false};
  std::atomic<int64_t> misdeeds_{0};
  std::vector<std::thread> active_;
};

}  // namespace

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

// The machine drifts by more than the crowd changes: times alone and beside alternate.
absl::StatusOr<Json> RunLoad(FaultBench* bench, const StressOptions& options) {
  constexpr int kTurns = 8;
  constexpr int64_t kLimitPercent = 10;
  const int steps = std::max(1, options.steps / kTurns);
  TP2_RETURN_IF_ERROR(bench->PayerTimes(steps).status());  // warm
  const Hiccups hiccups_before = MeasureHiccups(300);
  std::vector<int64_t> alone_ns, beside_ns;
  int64_t misdeeds = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    TP2_ASSIGN_OR_RETURN(const std::vector<int64_t> alone, bench->PayerTimes(steps));
    alone_ns.insert(alone_ns.end(), alone.begin(), alone.end());
    TP2_ASSIGN_OR_RETURN(const std::unique_ptr<Crowd> crowd,
                         Crowd::Gather(bench, options.connections));
    TP2_ASSIGN_OR_RETURN(const std::vector<int64_t> beside, bench->PayerTimes(steps));
    beside_ns.insert(beside_ns.end(), beside.begin(), beside.end());
    misdeeds += crowd->Leave();
    TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  }
  const Hiccups hiccups_after = MeasureHiccups(300);
  const double alone_ms = static_cast<double>(NearestRank(alone_ns, 50)) / 1e6;
  const double beside_ms = static_cast<double>(NearestRank(beside_ns, 50)) / 1e6;
  const double change_percent = 100 * (beside_ms / alone_ms - 1);
  return Json{{"connections", options.connections},
              {"steps", 2 * kTurns * steps},
              {"turns", kTurns},
              {"misdeeds", misdeeds},
              {"payer_p50_ms", {{"alone", alone_ms}, {"beside", beside_ms}}},
              {"change_percent", change_percent},
              {"limit_percent", kLimitPercent},
              {"is_within_limit", change_percent < kLimitPercent},
              {"hiccups_before", HiccupJson(hiccups_before)},
              {"hiccups_after", HiccupJson(hiccups_after)}};
}

absl::StatusOr<Json> RunSoak(FaultBench* bench, const StressOptions& options) {
  const int64_t begin_ns = bench->NowNs();
  const Usage before = UsageOf(options.worker_pid);
  std::vector<double> rss_kib, p50_ms;
  int64_t rounds = 0, sessions = 0, requests = 0;
  constexpr double kSampleSeconds = 5;
  while (static_cast<double>(bench->NowNs() - begin_ns) / 1e9 <
         static_cast<double>(options.seconds)) {
    const int64_t sample_ns = bench->NowNs();
    std::vector<double> times;
    TP2_RETURN_IF_ERROR(bench->RenewPayer());
    ++requests;
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
              {"requests", requests},
              {"before", UsageJson(before)},
              {"after", UsageJson(after)},
              {"rss_slope_kib_per_hour", SlopePerHour(settled, kSampleSeconds)},
              {"rss_kib", rss_kib},
              {"p50_ms", p50_ms}};
}

}  // namespace tp2::selftest
