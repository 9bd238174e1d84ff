// Faults of connections and frames: whoever breaks off, dribbles, floods or sends nonsense loses
// its own connection, and the paying client notices nothing.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cmd/dspark-selftest/fault_bench.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"

namespace tp2::selftest {
namespace {

using contract::Code;
using contract::Type;

constexpr int kPayerSteps = 50;

// A STEP of one entry for the tenant's slot, as it would be served.
std::vector<std::byte> StepFrame(FaultBench* bench, FaultBench::Tenant* tenant) {
  const StepPart part{&tenant->slot, tenant->slot.length, 1, 1};
  const BuiltStep step = bench->twin().Build({&part, 1}, kBlockRows);
  std::vector<std::byte> body(contract::StepHeadBytes(1));
  EncodeStepHead(step.message, body);
  body.insert(body.end(), step.message.row_area.begin(), step.message.row_area.end());
  return NextFrame(tenant->client.get(), Type::kStep, body);
}

// F1: gone after every 64th of a STEP frame, and right after all of it.
absl::StatusOr<double> Vanish(FaultBench* bench) {
  double slowest_ms = 0;
  for (int part = 0; part <= 64; ++part) {
    TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
    const std::vector<std::byte> frame = StepFrame(bench, &tenant);
    TP2_RETURN_IF_ERROR(
        SendRaw(tenant.client.get(), std::span(frame).first(frame.size() * part / 64)));
    tenant.client.reset();
    TP2_ASSIGN_OR_RETURN(const double ms, bench->WaitForOpenSlots(1));
    slowest_ms = std::max(slowest_ms, ms);
  }
  TP2_RETURN_IF_ERROR(bench->PayerP50(kPayerSteps).status());
  return slowest_ms;
}

// F2: a client killed with a slot open: nothing of it says goodbye but its kernel.
absl::StatusOr<double> Killed(FaultBench* bench) {
  int ready[2];
  TP2_RETURN_IF_ERROR(Demand(::pipe(ready) == 0, "pipe", "two ends", std::strerror(errno)));
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::StatusOr<FaultBench::Tenant> tenant = bench->NewTenant();
    const char says = tenant.ok() ? 'y' : 'n';
    (void)!::write(ready[1], &says, 1);
    ::pause();
    ::_exit(0);
  }
  TP2_RETURN_IF_ERROR(Demand(child > 0, "fork", "a child", std::strerror(errno)));
  char says = 'n';
  (void)!::read(ready[0], &says, 1);
  const int64_t begin_ns = bench->NowNs();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : ready) ::close(end);
  TP2_RETURN_IF_ERROR(Demand(says == 'y', "the child's slot", "open", "none"));
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  const double ms = static_cast<double>(bench->NowNs() - begin_ns) / 1e6;
  TP2_RETURN_IF_ERROR(bench->PayerP50(kPayerSteps).status());
  return ms;
}

// F4: half a frame, then silence.
absl::StatusOr<double> HalfFrame(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
  const std::vector<std::byte> frame = StepFrame(bench, &tenant);
  TP2_RETURN_IF_ERROR(SendRaw(tenant.client.get(), std::span(frame).first(frame.size() / 2)));
  TP2_ASSIGN_OR_RETURN(const double ms, bench->MsUntilClosed(tenant.client.get(), 10'000));
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return ms;
}

// F5: one byte every 10 ms while others work.
absl::StatusOr<double> OneByteAtATime(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(const double alone_ms, bench->PayerP50(200));
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
  const std::vector<std::byte> frame = StepFrame(bench, &tenant);
  std::thread dribble([&] {
    for (int i = 0; i < 100; ++i) {
      if (!SendRaw(tenant.client.get(), std::span(frame).subspan(static_cast<size_t>(i), 1)).ok()) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const absl::StatusOr<double> beside_ms = bench->PayerP50(200);
  dribble.join();
  if (!beside_ms.ok()) return beside_ms.status();
  tenant.client.reset();
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return *beside_ms / alone_ms;
}

// F6, F40: a STEP cut in two at every byte of its head, and 100 frames in one segment.
absl::StatusOr<double> SplitFrames(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
  client::Client* client = tenant.client.get();
  int mismatches = 0;
  std::vector<std::byte> payload(32);
  for (size_t cut = 1; cut < contract::kHeaderBytes + payload.size(); ++cut) {
    payload[0] = static_cast<std::byte>(cut);
    const std::vector<std::byte> frame = NextFrame(client, Type::kPing, payload);
    TP2_RETURN_IF_ERROR(SendRaw(client, std::span(frame).first(cut)));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    TP2_RETURN_IF_ERROR(SendRaw(client, std::span(frame).subspan(cut)));
    TP2_ASSIGN_OR_RETURN(const client::RawReply reply, client->Receive());
    if (reply.body != payload) ++mismatches;
  }
  std::vector<std::byte> segment;
  for (int i = 0; i < 100; ++i) {
    payload[0] = static_cast<std::byte>(i);
    const std::vector<std::byte> frame = NextFrame(client, Type::kPing, payload);
    segment.insert(segment.end(), frame.begin(), frame.end());
  }
  TP2_RETURN_IF_ERROR(SendRaw(client, segment));
  for (int i = 0; i < 100; ++i) {
    TP2_ASSIGN_OR_RETURN(const client::RawReply reply, client->Receive());
    if (reply.body.empty() || reply.body[0] != static_cast<std::byte>(i)) ++mismatches;
  }
  TP2_RETURN_IF_ERROR(Demand(mismatches == 0, "replies", "all", absl::StrCat(mismatches, " not")));
  return mismatches;
}

// F7: lengths at and beyond every limit.
absl::StatusOr<double> Lengths(FaultBench* bench) {
  int refused = 0;
  for (const uint32_t body_bytes : {1u, contract::kMaxBodyBytes + 1, 0x80000000u, 0xFFFFFFFFu}) {
    TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
    contract::FrameHeader header = tenant.client->NextHeader(Type::kClose);
    header.flags = 0;
    header.body_bytes = body_bytes;
    std::array<std::byte, contract::kHeaderBytes + 1> bytes{};
    EncodeHeader(header, bytes);
    TP2_RETURN_IF_ERROR(SendRaw(tenant.client.get(), bytes));
    TP2_ASSIGN_OR_RETURN(const client::RawReply reply, tenant.client->Receive());
    const Code expected = body_bytes == 1 ? Code::kBadFrame : Code::kTooLarge;
    TP2_RETURN_IF_ERROR(ExpectCode("length", expected, reply.code()));
    TP2_RETURN_IF_ERROR(bench->MsUntilClosed(tenant.client.get(), 1000).status());
    ++refused;
  }
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return refused;
}

// F8: a STEP whose header has one bit flipped never runs.
absl::StatusOr<double> FlippedBits(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(const contract::HealthReply before, bench->Health());
  for (size_t bit = 0; bit < contract::kHeaderBytes * 8; ++bit) {
    TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
    std::vector<std::byte> frame = StepFrame(bench, &tenant);
    frame[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    TP2_RETURN_IF_ERROR(SendRaw(tenant.client.get(), frame));
    TP2_ASSIGN_OR_RETURN(const client::RawReply reply, tenant.client->Receive());
    TP2_RETURN_IF_ERROR(ExpectCode("flipped header", Code::kBadFrame, reply.code()));
    tenant.client.reset();
    TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  }
  TP2_ASSIGN_OR_RETURN(const contract::HealthReply after, bench->Health());
  const double executed = static_cast<double>(after.steps - before.steps);
  TP2_RETURN_IF_ERROR(Demand(executed == 0, "STEPs", "none", absl::StrCat(executed)));
  return executed;
}

// F11: a thousand connections at once: those beyond the limit hear why, nobody leaks.
absl::StatusOr<double> ThousandConnections(FaultBench* bench) {
  const int64_t begin_ns = bench->NowNs();
  std::vector<std::unique_ptr<client::Client>> crowd;
  for (int i = 0; i < 1000; ++i) {
    absl::StatusOr<std::unique_ptr<client::Client>> client = bench->Stranger();
    if (!client.ok()) return client.status();
    crowd.push_back(std::move(client).value());
  }
  const double ms = static_cast<double>(bench->NowNs() - begin_ns) / 1e6;
  TP2_ASSIGN_OR_RETURN(const client::RawReply last, crowd.back()->Receive());
  TP2_RETURN_IF_ERROR(ExpectCode("the last one", Code::kTooManyConnections, last.code()));
  TP2_RETURN_IF_ERROR(bench->PayerP50(kPayerSteps).status());
  crowd.clear();
  // There is room again as soon as the worker has noticed.
  for (int i = 0; i < 1000; ++i) {
    const absl::StatusOr<std::unique_ptr<client::Client>> client = bench->Session();
    if (client.ok()) return ms;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Demand(false, "a session after the crowd left", "one", "none in 5 s");
}

// F12: never reads a reply; the worker neither buffers without end nor waits.
absl::StatusOr<double> SlowReader(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client, bench->Session());
  const int64_t begin_ns = bench->NowNs();
  std::vector<std::byte> payload(contract::kMaxPingBytes);
  std::vector<std::byte> segment;
  for (int i = 0; i < 4000; ++i) {
    const std::vector<std::byte> frame = NextFrame(client.get(), Type::kPing, payload);
    segment.insert(segment.end(), frame.begin(), frame.end());
  }
  bool is_closed = false;
  while (!is_closed && bench->NowNs() - begin_ns < 30'000'000'000) {
    is_closed = !client->connection().Send(segment, {}, 10'000).ok();
  }
  TP2_RETURN_IF_ERROR(Demand(is_closed, "a client that never reads", "closed", "served for 30 s"));
  TP2_RETURN_IF_ERROR(bench->PayerP50(kPayerSteps).status());
  return static_cast<double>(bench->NowNs() - begin_ns) / 1e6;
}

// F9 in small (fuzz has the million): connections that send noise.
absl::StatusOr<double> Noise(FaultBench* bench, uint64_t seed) {
  Rng rng(seed);
  const int64_t begin_ns = bench->NowNs();
  std::vector<std::byte> noise(10'000);
  for (int i = 0; i < 1000; ++i) {
    for (std::byte& byte : noise) byte = static_cast<std::byte>(rng.Next());
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client, bench->Stranger());
    (void)SendRaw(client.get(), noise);
    TP2_RETURN_IF_ERROR(bench->MsUntilClosed(client.get(), 10'000).status());
  }
  TP2_RETURN_IF_ERROR(bench->PayerP50(kPayerSteps).status());
  return 10.0 / (static_cast<double>(bench->NowNs() - begin_ns) / 1e9);
}

}  // namespace

std::vector<Fault> WireFaults(FaultBench* bench, uint64_t seed) {
  return {
      {"F1 vanishes-at-every-64th", "ms until its slots are free, slowest of 65",
       [=] { return Vanish(bench); }},
      {"F2 killed", "ms until its slot is free", [=] { return Killed(bench); }},
      {"F4 half-a-frame", "ms until closed", [=] { return HalfFrame(bench); }},
      {"F5 a-byte-every-10-ms", "p50 of others beside it / alone",
       [=] { return OneByteAtATime(bench); }},
      {"F6 frames-split-and-joined", "mismatches", [=] { return SplitFrames(bench); }},
      {"F7 lengths-beyond-limits", "refused", [=] { return Lengths(bench); }},
      {"F8 every-header-bit-flipped", "executed of 512", [=] { return FlippedBits(bench); }},
      {"F9 noise-on-1000-connections", "MB/s", [=] { return Noise(bench, seed); }},
      {"F11 thousand-connections", "ms to connect them",
       [=] { return ThousandConnections(bench); }},
      {"F12 never-reads", "ms until closed", [=] { return SlowReader(bench); }},
  };
}

}  // namespace tp2::selftest
