// A running server over a fake engine, and clients that reach it in process or over TCP.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <thread>
#include <vector>

#include "libcore/client/client.h"
#include "libcore/client/synthetic_rows.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/inproc.h"
#include "libcore/transport/tcp.h"
#include "tests/support/fake_engine.h"

namespace tp2::testing {

enum class Wire { kInproc, kTcp };

class RunningServer {
 public:
  RunningServer(Wire wire, const server::ServerOptions& options) : wire_(wire), options_(options) {
    spdlog::set_level(spdlog::level::off);
    server_ = std::make_unique<server::StepServer>(&engine_, options_, &clock_);
    if (wire_ == Wire::kTcp) {
      auto listener = transport::TcpListen({.host = "127.0.0.1", .port = 0},
                                           server::StepServer::RequestRule(options_));
      address_ = transport::ParseTcpAddress((*listener)->address()).value();
      server_->Listen(std::move(listener).value());
    }
    thread_ = std::thread([this] { end_ = server_->Run(); });
  }
  ~RunningServer() {
    if (thread_.joinable()) (void)Stop();
  }

  // Ends at once, without waiting for open slots.
  server::ServeEnd Stop() {
    server_->BeginDrain();
    server_->BeginDrain();
    return Join();
  }
  server::ServeEnd Join() {
    thread_.join();
    return end_;
  }

  std::unique_ptr<transport::Connection> Connect() {
    if (wire_ == Wire::kTcp) {
      return transport::TcpConnect(address_, client::Client::ReplyRule(), 5000).value();
    }
    auto [ours, theirs] = transport::MakeInprocPair(client::Client::ReplyRule(),
                                                    server::StepServer::RequestRule(options_));
    server_->Adopt(std::move(theirs));
    return std::move(ours);
  }
  std::unique_ptr<client::Client> NewClient(const Secret* secret = nullptr) {
    return std::make_unique<client::Client>(
        Connect(), client::ClientOptions{.timeout_ms = 5000, .secret = secret});
  }
  // With HELLO done.
  std::unique_ptr<client::Client> NewSession(const Secret* secret = nullptr) {
    auto result = NewClient(secret);
    EXPECT_EQ(result->Hello(client::HelloFor(engine_.info()))->code, contract::Code::kOk);
    return result;
  }

  FakeEngine& engine() { return engine_; }
  server::StepServer& server() { return *server_; }
  const transport::TcpAddress& address() const { return address_; }

 private:
  const Wire wire_;
  const server::ServerOptions options_;
  const SteadyClock clock_;
  FakeEngine engine_;
  transport::TcpAddress address_;
  std::unique_ptr<server::StepServer> server_;
  server::ServeEnd end_ = server::ServeEnd::kDrained;
  std::thread thread_;
};

// A slot as its client sees it.
struct ClientSlot {
  uint16_t slot = 0;
  uint64_t generation = 0;
  int64_t length = 0;
};

inline ClientSlot OpenSlot(client::Client& client, int64_t base = 0) {
  const auto answer = client.Open({.base = static_cast<uint64_t>(base)});
  EXPECT_TRUE(answer.ok() && answer->value.has_value());
  if (!answer.ok() || !answer->value.has_value()) return {};
  return {answer->value->slot, answer->value->generation, base};
}

inline std::vector<Bf16> RowsAt(int64_t position, int row_count, int stream = 0) {
  std::vector<Bf16> rows;
  client::AppendSyntheticRows({.seed = 1,
                               .slot = stream,
                               .position = position,
                               .row_count = row_count,
                               .row_values = FakeConfig().tap_values()},
                              &rows);
  return rows;
}

// One STEP under construction; owns its rows.
class StepMaker {
 public:
  StepMaker& Add(const ClientSlot& slot, int64_t position, int row_count, uint32_t anchor = 7,
                 int stream = 0) {
    auto& entry = message_.entries[message_.entry_count++];
    const int64_t length = position + row_count;
    entry = {.slot = slot.slot,
             .rows = static_cast<uint16_t>(row_count),
             .anchor = anchor,
             .generation = slot.generation,
             .position = static_cast<uint64_t>(position),
             .anchor_position = static_cast<uint64_t>(length),
             .first_row = message_.rows,
             .expected_length = static_cast<uint64_t>(length),
             .tag = 0};
    message_.rows += static_cast<uint32_t>(row_count);
    const auto rows = RowsAt(position, row_count, stream);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    return *this;
  }
  contract::StepMessage& message() {
    message_.flags = contract::kStepWantMargin | contract::kStepWantConfidence;
    message_.row_bytes = static_cast<uint32_t>(FakeConfig().tap_values() * sizeof(Bf16));
    message_.rows_offset = static_cast<uint32_t>(contract::StepHeadBytes(message_.entry_count));
    message_.row_area = std::as_bytes(std::span(rows_));
    return message_;
  }
  // The encoded head of message(), until the next call.
  std::span<const std::byte> Head() {
    head_.resize(contract::StepHeadBytes(message_.entry_count));
    contract::EncodeStepHead(message(), head_);
    return head_;
  }

 private:
  contract::StepMessage message_;
  std::vector<std::byte> head_;
  std::vector<Bf16> rows_;
};

inline contract::InsertMessage InsertOf(const ClientSlot& slot, int64_t position,
                                        std::span<const Bf16> rows) {
  const int row_count = static_cast<int>(rows.size()) / FakeConfig().tap_values();
  return {.slot = slot.slot,
          .row_kind = 1,
          .rows = static_cast<uint16_t>(row_count),
          .generation = slot.generation,
          .position = static_cast<uint64_t>(position),
          .expected_length = static_cast<uint64_t>(position + row_count),
          .row_bytes = static_cast<uint32_t>(FakeConfig().tap_values() * sizeof(Bf16)),
          .row_area = std::as_bytes(rows)};
}

}  // namespace tp2::testing
