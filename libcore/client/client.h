// A DSPK/1 client over one connection: encodes requests, counts seq, checks replies. Blocking;
// thread-compatible. Status is about the connection and the peer's frames; what the worker decided
// is the code inside an Answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/secret.h"
#include "libcore/contract/codec.h"
#include "libcore/contract/frame.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/transport/transport.h"

namespace tp2::client {

struct ClientOptions {
  int64_t timeout_ms = 30'000;  // for each reply
  bool uses_body_hash = true;
  uint64_t budget_us = 0;          // sent with every request; 0 for none
  const Secret* secret = nullptr;  // outlives the client; null: none
};

struct RawReply {
  contract::FrameHeader header;
  std::vector<std::byte> body;
  contract::Code code() const { return static_cast<contract::Code>(header.status); }
  bool is_cached() const { return (header.flags & contract::kFlagCachedReply) != 0; }
  bool is_draining() const { return (header.flags & contract::kFlagDraining) != 0; }
};

// `value` is filled when the reply carried a body: on kOk, and for HELLO and STEP on refusals too.
template <class T>
struct Answer {
  contract::Code code = contract::Code::kOk;
  std::optional<T> value;
  contract::FrameHeader header;
};

// What a request is made of; `rows` may be empty.
struct Outgoing {
  contract::FrameHeader header;
  std::span<const std::byte> head;
  std::span<const std::byte> rows;
};

class Client {
 public:
  Client(std::unique_ptr<transport::Connection> connection, const ClientOptions& options);

  static transport::FrameRule ReplyRule();

  // Answers a challenge with the secret, and then demands the worker's proof: kPermissionDenied
  // when a worker does not have it. Without a secret the answer to a challenge is its code.
  absl::StatusOr<Answer<contract::HelloReply>> Hello(const contract::HelloRequest& hello);
  absl::StatusOr<Answer<contract::OpenReply>> Open(const contract::OpenRequest& open);
  absl::StatusOr<Answer<contract::CloseReply>> Close(const contract::CloseRequest& close);
  // rows, row_bytes and expected_length are taken as they are: tests send wrong ones.
  absl::StatusOr<Answer<contract::InsertReply>> Insert(const contract::InsertMessage& insert);
  absl::StatusOr<Answer<contract::StepReply>> Step(const contract::StepMessage& step);
  absl::StatusOr<Answer<contract::HealthReply>> Health();
  absl::StatusOr<Answer<contract::SlotsReply>> Slots();
  absl::StatusOr<RawReply> Ping(std::span<const std::byte> payload);
  absl::StatusOr<RawReply> Bye();

  // The parts the calls above are made of, for tests of sequence and framing.
  contract::FrameHeader NextHeader(contract::Type type);  // counts seq up for sequenced types
  absl::Status Send(Outgoing outgoing);                   // fills in length and hash
  absl::StatusOr<RawReply> Receive();
  absl::StatusOr<RawReply> Call(const Outgoing& outgoing);

  uint64_t session() const { return session_; }
  uint64_t seq() const { return seq_; }
  transport::Connection& connection() { return *connection_; }
  ClientOptions& options() { return options_; }

 private:
  absl::StatusOr<RawReply> SendHello(const contract::HelloRequest& hello);

  std::unique_ptr<transport::Connection> connection_;
  ClientOptions options_;
  uint64_t session_ = 0;
  uint64_t seq_ = 0;
};

// The HELLO that a client with this engine's checkpoint sends.
contract::HelloRequest HelloFor(const EngineInfo& info);

}  // namespace tp2::client
