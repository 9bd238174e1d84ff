#include "cmd/dspark-selftest/fault_bench.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/client/synthetic_rows.h"

namespace tp2::selftest {

using contract::Code;

absl::Status Demand(bool holds, const std::string& what, const std::string& expected,
                    const std::string& got) {
  if (holds) return absl::OkStatus();
  return MakeError(absl::StatusCode::kAborted, {.what = what, .expected = expected, .got = got});
}

absl::Status SendRaw(client::Client* client, std::span<const std::byte> bytes) {
  return client->connection().Send(bytes, {}, 5000);
}

std::vector<std::byte> NextFrame(client::Client* client, contract::Type type,
                                 std::span<const std::byte> body) {
  contract::FrameHeader header = client->NextHeader(type);
  header.flags = 0;
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::vector<std::byte> frame(contract::kHeaderBytes + body.size());
  contract::EncodeHeader(header, frame);
  std::copy(body.begin(), body.end(), frame.begin() + contract::kHeaderBytes);
  return frame;
}

absl::Status FaultBench::Begin() {
  TP2_ASSIGN_OR_RETURN(payer_, twin_->Open(0, 0));
  return twin_->Insert(&payer_, 0, 6);
}

absl::Status FaultBench::RenewPayer() {
  TP2_RETURN_IF_ERROR(End());
  return Begin();
}

absl::StatusOr<std::unique_ptr<client::Client>> FaultBench::Session() {
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client, connect_());
  TP2_ASSIGN_OR_RETURN(const auto answer, client->Hello(client::HelloFor(info())));
  TP2_RETURN_IF_ERROR(ExpectCode("HELLO", Code::kOk, answer.code));
  return client;
}

absl::StatusOr<FaultBench::Tenant> FaultBench::NewTenant() {
  Tenant tenant;
  TP2_ASSIGN_OR_RETURN(tenant.client, Session());
  TP2_ASSIGN_OR_RETURN(const auto opened, tenant.client->Open({}));
  TP2_RETURN_IF_ERROR(ExpectCode("OPEN", Code::kOk, opened.code));
  tenant.slot = {.slot = opened.value->slot, .generation = opened.value->generation};
  std::vector<Bf16> rows;
  client::AppendSyntheticRows({.seed = 3, .row_count = 6, .row_values = info().config.tap_values()},
                              &rows);
  TP2_ASSIGN_OR_RETURN(const auto inserted,
                       tenant.client->Insert({.slot = tenant.slot.slot,
                                              .rows = 6,
                                              .generation = tenant.slot.generation,
                                              .expected_length = 6,
                                              .row_bytes = static_cast<uint32_t>(
                                                  info().config.tap_values() * sizeof(Bf16)),
                                              .row_area = std::as_bytes(std::span(rows))}));
  TP2_RETURN_IF_ERROR(ExpectCode("INSERT", Code::kOk, inserted.code));
  tenant.slot.length = 6;
  return tenant;
}

absl::StatusOr<double> FaultBench::PayerP50(int steps) {
  TP2_ASSIGN_OR_RETURN(std::vector<int64_t> times_ns, PayerTimes(steps));
  return static_cast<double>(NearestRank(std::move(times_ns), 50)) / 1e6;
}

absl::StatusOr<std::vector<int64_t>> FaultBench::PayerTimes(int steps) {
  std::vector<int64_t> times_ns;
  for (int i = 0; i < steps; ++i) {
    const StepPart part{&payer_, payer_.length, 1, static_cast<uint32_t>(i % 100)};
    const auto reply = twin_->Step({&part, 1}, kBlockRows);
    if (!reply.ok()) return WithContext(reply.status(), "the paying client");
    times_ns.push_back(twin_->last_worker_ns());
  }
  return times_ns;
}

absl::StatusOr<contract::HealthReply> FaultBench::Health() {
  TP2_ASSIGN_OR_RETURN(const auto answer, twin_->client().Health());
  TP2_RETURN_IF_ERROR(ExpectCode("HEALTH", Code::kOk, answer.code));
  return *answer.value;
}

absl::StatusOr<double> FaultBench::WaitForOpenSlots(uint32_t count) {
  constexpr int64_t kLimitNs = 10'000'000'000;
  const int64_t begin_ns = NowNs();
  while (true) {
    TP2_ASSIGN_OR_RETURN(const contract::HealthReply health, Health());
    const int64_t spent_ns = NowNs() - begin_ns;
    if (health.open_slots == count) return static_cast<double>(spent_ns) / 1e6;
    TP2_RETURN_IF_ERROR(Demand(spent_ns < kLimitNs, "open slots", absl::StrCat(count),
                               absl::StrCat(health.open_slots, " after 10 s")));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

absl::StatusOr<double> FaultBench::MsUntilClosed(client::Client* client, int64_t limit_ms) {
  const int64_t begin_ns = NowNs();
  while (true) {
    const int64_t spent_ms = (NowNs() - begin_ns) / 1'000'000;
    TP2_RETURN_IF_ERROR(Demand(spent_ms < limit_ms, "connection",
                               absl::StrCat("closed within ", limit_ms, " ms"), "open"));
    const transport::Received received = client->connection().Receive(limit_ms - spent_ms);
    if (received.event == transport::Event::kFrame) client->connection().Release(received.frame);
    const bool is_over = received.event == transport::Event::kClosed ||
                         received.event == transport::Event::kTruncated;
    if (is_over) return static_cast<double>(NowNs() - begin_ns) / 1e6;
  }
}

}  // namespace tp2::selftest
