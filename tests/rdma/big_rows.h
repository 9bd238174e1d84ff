// A fake engine whose rows have the size of the real ones, and STEPs for it.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "libcore/client/client.h"
#include "libcore/client/synthetic_rows.h"
#include "libcore/client/verbs_connect.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/verbs.h"
#include "tests/support/fake_engine.h"

namespace tp2::testing {

constexpr int kBigDim = 5120;  // three taps of bf16: 30,720 bytes a row

// Address of an RDMA device of this machine; null: there is none.
inline const char* RdmaAddress() { return std::getenv("RDMA_ADDRESS"); }

// A server over the fake engine, answering RDMA; Run is the caller's.
class BigServer {
 public:
  explicit BigServer(uint16_t port = 0) {
    engine_.mutable_info().config.dim = kBigDim;
    server_ = std::make_unique<server::StepServer>(&engine_, options_, &clock_);
    auto listener = transport::VerbsListen(
        {.host = RdmaAddress(), .port = port}, server::StepServer::RequestRule(options_),
        {.identity = client::VerbsIdentity(engine_.info().identity_digest),
         .max_send_bytes = contract::kMaxReplyBytes});
    address_ = transport::ParseTcpAddress((*listener)->address()).value();
    server_->Listen(std::move(listener).value());
  }

  server::StepServer& server() { return *server_; }
  const server::ServerOptions& options() const { return options_; }
  const EngineInfo& info() const { return engine_.info(); }
  const transport::TcpAddress& address() const { return address_; }

 private:
  const server::ServerOptions options_;
  const SteadyClock clock_;
  FakeEngine engine_;
  transport::TcpAddress address_;
  std::unique_ptr<server::StepServer> server_;
};

// With HELLO said; null when that fails.
inline std::unique_ptr<client::Client> NewSession(
    absl::StatusOr<std::unique_ptr<transport::Connection>> connection, const EngineInfo& info,
    int64_t timeout_ms = 20'000) {
  if (!connection.ok()) return nullptr;
  auto session = std::make_unique<client::Client>(std::move(connection).value(),
                                                  client::ClientOptions{.timeout_ms = timeout_ms});
  const auto hello = session->Hello(client::HelloFor(info));
  if (!hello.ok() || hello->code != contract::Code::kOk) return nullptr;
  return session;
}

inline std::unique_ptr<client::Client> NewRdmaSession(const transport::TcpAddress& address,
                                                      int64_t timeout_ms = 20'000) {
  FakeEngine engine;
  engine.mutable_info().config.dim = kBigDim;
  return NewSession(client::ConnectVerbs(address, client::Client::ReplyRule(),
                                         engine.info().identity_digest, timeout_ms),
                    engine.info(), timeout_ms);
}

// STEPs of six rows, one after the other in one slot: 184,512 bytes on the wire each. The tokens of
// all of them; empty when anything fails.
inline std::vector<int32_t> DraftRounds(client::Client& session, int rounds) {
  const auto opened = session.Open({.base = 0});
  if (!opened.ok() || !opened->value.has_value()) return {};
  std::vector<int32_t> tokens;
  for (int round = 0; round < rounds; ++round) {
    constexpr int kRows = 6;
    std::vector<Bf16> rows;
    client::AppendSyntheticRows({.seed = 1,
                                 .slot = 0,
                                 .position = round * kRows,
                                 .row_count = kRows,
                                 .row_values = 3 * kBigDim},
                                &rows);
    contract::StepMessage step;
    step.entry_count = 1;
    step.n_out = 5;
    step.flags = contract::kStepWantMargin | contract::kStepWantConfidence;
    step.rows = kRows;
    step.row_bytes = 3 * kBigDim * sizeof(Bf16);
    step.rows_offset = static_cast<uint32_t>(contract::StepHeadBytes(1));
    const auto length = static_cast<uint64_t>(round + 1) * kRows;
    step.entries[0] = {.slot = opened->value->slot,
                       .rows = kRows,
                       .anchor = 7,
                       .generation = opened->value->generation,
                       .position = length - kRows,
                       .anchor_position = length,
                       .first_row = 0,
                       .expected_length = length,
                       .tag = 0};
    step.row_area = std::as_bytes(std::span(rows));
    const auto answer = session.Step(step);
    if (!answer.ok() || answer->code != contract::Code::kOk) return {};
    const auto& drafted = answer->value->entries[0].tokens;
    tokens.insert(tokens.end(), drafted.begin(), drafted.end());
  }
  const auto closed =
      session.Close({.slot = opened->value->slot, .generation = opened->value->generation});
  if (!closed.ok() || closed->code != contract::Code::kOk) return {};
  return tokens;
}

}  // namespace tp2::testing
