#include "libcore/client/client.h"

#include <array>
#include <string>
#include <utility>

#include "libcore/base/digest.h"
#include "libcore/base/entropy.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/contract/auth.h"
#include "libcore/contract/digests.h"

namespace tp2::client {
namespace {

using contract::Code;
using contract::Type;

absl::Status BadReply(const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kDataLoss,
                   {.what = "reply", .expected = expected, .got = got});
}

bool IsSequenced(Type type) {
  return type != Type::kHello && type != Type::kHealth && type != Type::kPing;
}

// Decodes a body when there is one; a reply with code OK must have it.
template <class T, class Decode>
absl::StatusOr<Answer<T>> ToAnswer(const absl::StatusOr<RawReply>& reply, Decode decode) {
  if (!reply.ok()) return reply.status();
  Answer<T> answer{.code = reply->code(), .value = std::nullopt, .header = reply->header};
  if (reply->body.empty() && answer.code != Code::kOk) return answer;
  T value;
  if (decode(reply->body, &value) != Code::kOk) {
    return BadReply("a body as the contract defines it",
                    std::to_string(reply->body.size()) + " other bytes");
  }
  answer.value = std::move(value);
  return answer;
}

}  // namespace

Client::Client(std::unique_ptr<transport::Connection> connection, const ClientOptions& options)
    : connection_(std::move(connection)), options_(options) {}

transport::FrameRule Client::ReplyRule() {
  return {.header_bytes = contract::kHeaderBytes,
          .max_body_bytes = contract::kMaxReplyBytes - contract::kHeaderBytes,
          .sizer = contract::ReplyBodyBytes};
}

contract::FrameHeader Client::NextHeader(Type type) {
  contract::FrameHeader header;
  header.type = static_cast<uint16_t>(type);
  header.flags = options_.uses_body_hash ? contract::kFlagBodyHash : 0u;
  header.session = session_;
  header.seq = IsSequenced(type) ? ++seq_ : 0;
  header.time_us = options_.budget_us;
  return header;
}

absl::Status Client::Send(Outgoing outgoing) {
  outgoing.header.body_bytes = static_cast<uint32_t>(outgoing.head.size() + outgoing.rows.size());
  if ((outgoing.header.flags & contract::kFlagBodyHash) != 0 && outgoing.header.body_hash == 0) {
    Xxh3 hash;
    hash.Update(outgoing.head);
    hash.Update(outgoing.rows);
    outgoing.header.body_hash = hash.Finish();
  }
  std::array<std::byte, contract::kHeaderBytes + contract::StepHeadBytes(kMaxRequests)> front;
  contract::EncodeHeader(outgoing.header, front);
  if (contract::kHeaderBytes + outgoing.head.size() > front.size()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "request head",
                      .expected = "at most " + std::to_string(front.size()) + " bytes",
                      .got = std::to_string(outgoing.head.size())});
  }
  std::copy(outgoing.head.begin(), outgoing.head.end(), front.begin() + contract::kHeaderBytes);
  return connection_->Send(std::span(front).first(contract::kHeaderBytes + outgoing.head.size()),
                           outgoing.rows, options_.timeout_ms);
}

absl::StatusOr<RawReply> Client::Receive() {
  const transport::Received received = connection_->Receive(options_.timeout_ms);
  if (received.event == transport::Event::kTimeout) {
    return MakeError(absl::StatusCode::kDeadlineExceeded,
                     {.what = "reply",
                      .expected = "one within " + std::to_string(options_.timeout_ms) + " ms",
                      .got = "none"});
  }
  if (received.event != transport::Event::kFrame) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = "reply",
                      .expected = "a frame from " + connection_->peer(),
                      .got = "the end of the connection"});
  }
  RawReply reply;
  const Code code = DecodeHeader(received.frame, contract::Direction::kReply, &reply.header);
  const auto body = received.frame.subspan(contract::kHeaderBytes);
  reply.body.assign(body.begin(), body.end());
  connection_->Release(received.frame);
  if (code != Code::kOk) return BadReply("a valid header", CodeName(code));
  if ((reply.header.type & contract::kReplyBit) == 0) return BadReply("a reply type", "a request");
  if ((reply.header.flags & contract::kFlagBodyHash) != 0 &&
      reply.header.body_hash != contract::HashBody(reply.body)) {
    return BadReply("body hash " + Hex64(reply.header.body_hash),
                    Hex64(contract::HashBody(reply.body)));
  }
  return reply;
}

absl::StatusOr<RawReply> Client::Call(const Outgoing& outgoing) {
  TP2_RETURN_IF_ERROR(Send(outgoing));
  while (true) {
    TP2_ASSIGN_OR_RETURN(RawReply reply, Receive());
    // A reply whose deadline had passed may still arrive: it is recognised and dropped.
    const bool is_late = reply.header.seq < outgoing.header.seq && reply.header.seq != 0;
    if (!is_late) return reply;
  }
}

absl::StatusOr<RawReply> Client::SendHello(const contract::HelloRequest& hello) {
  std::array<std::byte, contract::kHelloBytes> body;
  EncodeHelloRequest(hello, body);
  return Call({.header = NextHeader(Type::kHello), .head = body, .rows = {}});
}

absl::StatusOr<Answer<contract::HelloReply>> Client::Hello(const contract::HelloRequest& hello) {
  absl::StatusOr<RawReply> reply = SendHello(hello);
  if (!reply.ok()) return reply.status();
  const bool is_challenge = reply->code() == Code::kChallenge;
  if (is_challenge && options_.secret == nullptr) {
    return Answer<contract::HelloReply>{
        .code = Code::kChallenge, .value = std::nullopt, .header = reply->header};
  }
  contract::HelloRequest again = hello;
  if (is_challenge) {
    contract::ChallengeReply challenge;
    if (DecodeChallengeReply(reply->body, &challenge) != Code::kOk) {
      return BadReply("a challenge", std::to_string(reply->body.size()) + " other bytes");
    }
    again.nonce = RandomValue<contract::Nonce>();
    std::array<std::byte, contract::kHelloBytes> body;
    EncodeHelloRequest(again, body);
    again.proof = contract::ClientProof(*options_.secret, challenge.nonce, body);
    reply = SendHello(again);
    if (!reply.ok()) return reply.status();
  }
  auto answer = ToAnswer<contract::HelloReply>(reply, contract::DecodeHelloReply);
  if (options_.secret != nullptr && answer.ok() && answer->value.has_value()) {
    const bool is_proved =
        is_challenge && MacsEqual(contract::WorkerProof(*options_.secret, again.nonce, reply->body),
                                  answer->value->proof);
    if (!is_proved) {
      return MakeError(absl::StatusCode::kPermissionDenied,
                       {.what = "worker " + connection_->peer(),
                        .expected = "proof that it knows the secret",
                        .got = is_challenge ? "another proof" : "no challenge"});
    }
  }
  if (answer.ok() && answer->code == Code::kOk) session_ = answer->value->session;
  return answer;
}

absl::StatusOr<Answer<contract::OpenReply>> Client::Open(const contract::OpenRequest& open) {
  std::array<std::byte, contract::kOpenBytes> body;
  EncodeOpenRequest(open, body);
  return ToAnswer<contract::OpenReply>(
      Call({.header = NextHeader(Type::kOpen), .head = body, .rows = {}}),
      contract::DecodeOpenReply);
}

absl::StatusOr<Answer<contract::CloseReply>> Client::Close(const contract::CloseRequest& close) {
  std::array<std::byte, contract::kCloseBytes> body;
  EncodeCloseRequest(close, body);
  return ToAnswer<contract::CloseReply>(
      Call({.header = NextHeader(Type::kClose), .head = body, .rows = {}}),
      contract::DecodeCloseReply);
}

absl::StatusOr<Answer<contract::InsertReply>> Client::Insert(
    const contract::InsertMessage& insert) {
  std::array<std::byte, contract::kInsertHeadBytes> head;
  EncodeInsertHead(insert, head);
  return ToAnswer<contract::InsertReply>(
      Call({.header = NextHeader(Type::kInsert), .head = head, .rows = insert.row_area}),
      contract::DecodeInsertReply);
}

absl::StatusOr<Answer<contract::StepReply>> Client::Step(const contract::StepMessage& step) {
  std::array<std::byte, contract::StepHeadBytes(kMaxRequests)> head;
  EncodeStepHead(step, head);
  return ToAnswer<contract::StepReply>(
      Call({.header = NextHeader(Type::kStep),
            .head = std::span(head).first(contract::StepHeadBytes(step.entry_count)),
            .rows = step.row_area}),
      contract::DecodeStepReply);
}

absl::StatusOr<Answer<contract::HealthReply>> Client::Health() {
  return ToAnswer<contract::HealthReply>(
      Call({.header = NextHeader(Type::kHealth), .head = {}, .rows = {}}),
      contract::DecodeHealthReply);
}

absl::StatusOr<Answer<contract::SlotsReply>> Client::Slots() {
  return ToAnswer<contract::SlotsReply>(
      Call({.header = NextHeader(Type::kSlots), .head = {}, .rows = {}}),
      contract::DecodeSlotsReply);
}

absl::StatusOr<RawReply> Client::Ping(std::span<const std::byte> payload) {
  return Call({.header = NextHeader(Type::kPing), .head = payload, .rows = {}});
}

absl::StatusOr<RawReply> Client::Bye() {
  return Call({.header = NextHeader(Type::kBye), .head = {}, .rows = {}});
}

contract::HelloRequest HelloFor(const EngineInfo& info) {
  const DrafterConfig& config = info.config;
  contract::HelloRequest hello;
  hello.identity = info.identity_digest;
  hello.config = contract::ConfigDigest(config.Canonical());
  hello.vocab = static_cast<uint32_t>(config.vocab);
  hello.hidden = static_cast<uint32_t>(config.dim);
  hello.taps = static_cast<uint16_t>(config.tap_count());
  hello.row_bytes = static_cast<uint32_t>(config.tap_values()) * sizeof(Bf16);
  hello.window_rows = static_cast<uint16_t>(config.window);
  hello.features = contract::kFeatureMargin | contract::kFeatureMainX | contract::kFeatureBodyHash;
  hello.numerics = contract::NumericsDigest({.version = info.numerics_version,
                                             .portable_bits = info.portable_bits,
                                             .tp = info.tp,
                                             .backend = info.backend,
                                             .device_names = info.device_names});
  return hello;
}

}  // namespace tp2::client
