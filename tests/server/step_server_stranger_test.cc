// Whoever has no right to be here gets the refusal and nothing else, in process and over TCP.
#include <gtest/gtest.h>

#include "libcore/contract/auth.h"
#include "tests/server/step_server_fixture.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::Type;
using testing::OpenSlot;
using testing::StepMaker;

const Secret& RightSecret() {
  static const Secret secret = Secret::FromBytes("the secret of this worker").value();
  return secret;
}
const Secret& WrongSecret() {
  static const Secret secret = Secret::FromBytes("the secret of some worker").value();
  return secret;
}

class StepServerStranger : public StepServerTest {
 protected:
  void StartWithSecret() {
    ServerOptions options;
    options.service.secret = &RightSecret();
    Start(options);
  }
  // The reply said `code` and nothing more, and the connection is over.
  void ExpectOnlyRefusal(client::Client* client, const absl::StatusOr<client::RawReply>& reply,
                         Code code) {
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->code(), code);
    EXPECT_TRUE(reply->body.empty());
    EXPECT_EQ(reply->header.session, 0u);
    EXPECT_FALSE(client->Receive().ok());
  }
  std::array<std::byte, contract::kHelloBytes> HelloBody(contract::HelloRequest hello) {
    std::array<std::byte, contract::kHelloBytes> body;
    EncodeHelloRequest(hello, body);
    return body;
  }
  absl::StatusOr<client::RawReply> Say(client::Client* client, Type type,
                                       std::span<const std::byte> body) {
    return client->Call({.header = client->NextHeader(type), .head = body, .rows = {}});
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, StepServerStranger, ::testing::Values(Wire::kInproc, Wire::kTcp),
                         WireName);

TEST_P(StepServerStranger, ServesWhoeverProvesTheSecret) {
  StartWithSecret();
  auto client = running_->NewSession(&RightSecret());
  const auto step = client->Step(StepMaker().Add(OpenSlot(*client), 0, 2).message());
  ASSERT_EQ(step->code, Code::kOk);
  ExpectSameDrafts(step->value->entries[0], Expected(0, 2, 7, 5));
  EXPECT_EQ(client->Health()->code, Code::kOk);
}

TEST_P(StepServerStranger, RefusesAWrongSecret) {
  StartWithSecret();
  auto client = running_->NewClient(&WrongSecret());
  const auto answer = client->Hello(client::HelloFor(engine().info()));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->code, Code::kNotAuthorized);
  EXPECT_FALSE(answer->value.has_value());
  EXPECT_FALSE(client->Receive().ok());
}

TEST_P(StepServerStranger, WithoutASecretOneLearnsOnlyThatOneIsWanted) {
  StartWithSecret();
  auto client = running_->NewClient();
  const auto body = HelloBody(client::HelloFor(engine().info()));
  const auto challenge = Say(client.get(), Type::kHello, body);
  EXPECT_EQ(challenge->code(), Code::kChallenge);
  EXPECT_EQ(challenge->body.size(), contract::kChallengeBytes);
  ExpectOnlyRefusal(client.get(), Say(client.get(), Type::kHello, body), Code::kNotAuthorized);
}

TEST_P(StepServerStranger, IsAskedForTheSecretBeforeItsHelloIsRead) {
  StartWithSecret();
  auto hello = client::HelloFor(engine().info());
  hello.identity.fill(0);
  hello.lowest_version = hello.highest_version = 0x0900;
  auto client = running_->NewClient();
  EXPECT_EQ(Say(client.get(), Type::kHello, HelloBody(hello))->code(), Code::kChallenge);
}

TEST_P(StepServerStranger, AnAnswerCountsForItsOwnChallengeAndOnlyOnce) {
  StartWithSecret();
  auto first = running_->NewClient();
  auto second = running_->NewClient();
  auto hello = client::HelloFor(engine().info());
  const auto plain = HelloBody(hello);
  contract::ChallengeReply challenge;
  ASSERT_EQ(DecodeChallengeReply(Say(first.get(), Type::kHello, plain)->body, &challenge),
            Code::kOk);
  ASSERT_EQ(Say(second.get(), Type::kHello, plain)->code(), Code::kChallenge);
  hello.nonce[0] = 1;
  hello.proof = contract::ClientProof(RightSecret(), challenge.nonce, HelloBody(hello));
  // Overheard on the first connection, said on the second.
  ExpectOnlyRefusal(second.get(), Say(second.get(), Type::kHello, HelloBody(hello)),
                    Code::kNotAuthorized);
  EXPECT_EQ(Say(first.get(), Type::kHello, HelloBody(hello))->code(), Code::kOk);
}

TEST_P(StepServerStranger, AProofWithoutAChallengeIsNone) {
  StartWithSecret();
  auto hello = client::HelloFor(engine().info());
  hello.proof = contract::ClientProof(RightSecret(), contract::Nonce{}, HelloBody(hello));
  auto client = running_->NewClient();
  ExpectOnlyRefusal(client.get(), Say(client.get(), Type::kHello, HelloBody(hello)),
                    Code::kNotAuthorized);
}

TEST_P(StepServerStranger, AChangedHelloIsNotTheOneThatWasProved) {
  StartWithSecret();
  auto client = running_->NewClient();
  auto hello = client::HelloFor(engine().info());
  contract::ChallengeReply challenge;
  ASSERT_EQ(
      DecodeChallengeReply(Say(client.get(), Type::kHello, HelloBody(hello))->body, &challenge),
      Code::kOk);
  hello.proof = contract::ClientProof(RightSecret(), challenge.nonce, HelloBody(hello));
  hello.slots = 1;
  ExpectOnlyRefusal(client.get(), Say(client.get(), Type::kHello, HelloBody(hello)),
                    Code::kNotAuthorized);
}

TEST_P(StepServerStranger, HealthAndPingNeedASessionWhenThereIsASecret) {
  StartWithSecret();
  for (const Type type : {Type::kHealth, Type::kPing}) {
    auto client = running_->NewClient();
    ExpectOnlyRefusal(client.get(), Say(client.get(), type, {}), Code::kNotAuthorized);
  }
}

TEST_P(StepServerStranger, DoesNotLearnThatTheWorkerDrains) {
  ServerOptions options;
  options.service.secret = &RightSecret();
  options.drain_ms = 60'000;
  Start(options);
  auto client = running_->NewSession(&RightSecret());
  const auto slot = OpenSlot(*client);
  auto stranger = running_->NewClient();
  auto late = running_->NewClient(&RightSecret());
  running_->server().BeginDrain();
  while (client->Health()->value->state != contract::WorkerState::kDraining) {
    std::this_thread::yield();
  }
  const auto reply = Say(stranger.get(), Type::kHello, HelloBody(client::HelloFor({})));
  EXPECT_EQ(reply->code(), Code::kChallenge);
  EXPECT_FALSE(reply->is_draining());
  EXPECT_EQ(late->Hello(client::HelloFor(engine().info()))->code, Code::kDraining);
  EXPECT_EQ(client->Close({.slot = slot.slot, .generation = slot.generation})->code, Code::kOk);
  EXPECT_EQ(running_->Join(), ServeEnd::kDrained);
}

TEST_P(StepServerStranger, AWorkerThatCannotProveTheSecretIsLeft) {
  Start();  // has none, and asks for none
  auto client = running_->NewClient(&RightSecret());
  const auto answer = client->Hello(client::HelloFor(engine().info()));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied) << answer.status();
}

TEST_P(StepServerStranger, GetsNoRoomForABodyBeforeItsSession) {
  Start();
  auto client = running_->NewClient();
  contract::FrameHeader header = client->NextHeader(Type::kHello);
  header.flags = 0;
  header.body_bytes = contract::kHelloBytes + 1;
  std::array<std::byte, contract::kHeaderBytes> bytes;
  EncodeHeader(header, bytes);
  ASSERT_TRUE(client->connection().Send(bytes, {}, 1000).ok());
  ExpectOnlyRefusal(client.get(), client->Receive(), Code::kTooLarge);
}

TEST_P(StepServerStranger, IsShownOutWhenItDoesNotSayHelloInTime) {
  Start({.hello_ms = 50});
  auto silent = running_->NewClient();
  auto client = running_->NewSession();
  EXPECT_FALSE(silent->Receive().ok());
  EXPECT_EQ(client->Slots()->code, Code::kOk);
}

TEST_P(StepServerStranger, LearnsThatThereAreTooManyConnections) {
  Start({.max_connections = 1});
  auto first = running_->NewSession();
  auto second = running_->NewClient();
  ExpectOnlyRefusal(second.get(), second->Receive(), Code::kTooManyConnections);
}

TEST(StepServerNetworks, OnlyListedNetworksAreServed) {
  for (const char* network : {"127.0.0.1", "10.0.0.0/8"}) {
    ServerOptions options;
    options.allowed_clients = transport::NetworkList::Parse({network}).value();
    testing::RunningServer running(Wire::kTcp, options);
    auto client = running.NewClient();
    const auto answer = client->Hello(client::HelloFor(running.engine().info()));
    ASSERT_TRUE(answer.ok()) << answer.status();
    const bool is_listed = std::string(network) == "127.0.0.1";
    EXPECT_EQ(answer->code, is_listed ? Code::kOk : Code::kNotAuthorized);
    EXPECT_EQ(answer->value.has_value(), is_listed);
  }
}

// Changes a byte of every frame after it was received, as a peer can that writes into our memory.
class RewritingConnection final : public transport::Connection {
 public:
  RewritingConnection(std::unique_ptr<transport::Connection> inner, size_t offset)
      : inner_(std::move(inner)), offset_(offset) {}

  transport::Received Receive(int64_t timeout_ms) override {
    const transport::Received received = inner_->Receive(timeout_ms);
    if (received.event == transport::Event::kFrame) received.frame[offset_] ^= std::byte{1};
    return received;
  }
  void LimitBody(size_t max_body_bytes) override { inner_->LimitBody(max_body_bytes); }
  void SpinFor(int64_t spin_us) override { inner_->SpinFor(spin_us); }
  void Release(std::span<std::byte> frame) override { inner_->Release(frame); }
  absl::Status Send(std::span<const std::byte> header, std::span<const std::byte> body,
                    int64_t timeout_ms) override {
    return inner_->Send(header, body, timeout_ms);
  }
  void Wake() override { inner_->Wake(); }
  void Shutdown() override { inner_->Shutdown(); }
  std::string peer() const override { return inner_->peer(); }

 private:
  std::unique_ptr<transport::Connection> inner_;
  size_t offset_;
};

TEST(StepServerRewrittenHeader, IsABadFrameAndHarmsNobodyElse) {
  testing::RunningServer running(Wire::kInproc, {});
  const auto beside = running.NewSession();
  const testing::ClientSlot slot = OpenSlot(*beside);
  for (const size_t offset : {size_t{0}, size_t{12}, size_t{32}}) {  // magic, checksum, length
    auto [ours, theirs] = transport::MakeInprocPair(client::Client::ReplyRule(),
                                                    StepServer::RequestRule(ServerOptions()));
    running.server().Adopt(std::make_unique<RewritingConnection>(std::move(theirs), offset));
    client::Client stranger(std::move(ours), {.timeout_ms = 5000});
    const auto answer = stranger.Hello(client::HelloFor(running.engine().info()));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->code, Code::kBadFrame) << offset;
    EXPECT_FALSE(stranger.Receive().ok()) << offset;
  }
  const auto step = beside->Step(StepMaker().Add(slot, 0, 2).message());
  ASSERT_EQ(step->code, Code::kOk);
  ExpectSameDrafts(step->value->entries[0], Expected(0, 2, 7, 5));
}

}  // namespace
}  // namespace tp2::server
