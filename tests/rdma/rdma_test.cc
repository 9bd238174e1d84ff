// What only RDMA can get wrong: private data, keys, slots, and peers that vanish. Needs a device,
// whose address RDMA_ADDRESS names: soft-RoCE in the virtual machine of vm.sh, or a real one.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/unique_fd.h"
#include "libcore/transport/inproc.h"
#include "tests/rdma/big_rows.h"
#include "tests/rdma/raw_client.h"

namespace tp2::transport {
namespace {

using tp2::testing::BigServer;
using tp2::testing::DraftRounds;
using tp2::testing::NewRdmaSession;
using tp2::testing::NewSession;

class RdmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tp2::testing::RdmaAddress() == nullptr) GTEST_SKIP() << "RDMA_ADDRESS names no device";
    spdlog::set_level(spdlog::level::off);
  }
};
using RdmaHandshake = RdmaTest;
using RdmaFrames = RdmaTest;
using RdmaWorker = RdmaTest;
using RdmaLink = RdmaTest;

template <size_t kOffset>
void Flip(RawClient::PrivateData* data) {
  (*data)[kOffset] ^= std::byte{1};
}

TEST_F(RdmaHandshake, WrongPrivateDataIsRefusedWithItsCode) {
  RdmaBench bench;
  const struct {
    const char* what;
    void (*change)(RawClient::PrivateData*);
    Refusal refusal;
  } cases[] = {
      {"magic", Flip<0>, Refusal::kNotOurs},
      {"version", Flip<4>, Refusal::kVersion},
      {"zero", Flip<6>, Refusal::kNotOurs},
      {"identity", Flip<24>, Refusal::kIdentity},
      {"ring",
       [](RawClient::PrivateData* data) { std::fill_n(data->begin() + 52, 4, std::byte{0}); },
       Refusal::kRing},
  };
  for (const auto& one : cases) {
    RawClient client;
    EXPECT_EQ(bench.AcceptRaw(&client, one.change), nullptr) << one.what;
    EXPECT_EQ(client.answer().type, RDMA_CM_EVENT_REJECTED) << one.what;
    EXPECT_EQ(DecodeRejection(client.answer().private_data()), one.refusal) << one.what;
  }
  EXPECT_TRUE(HonestPair(&bench).Works());
}

TEST_F(RdmaHandshake, AClientLearnsWhyItWasRefused) {
  std::unique_ptr<Connection> ours;
  RdmaBench bench;
  VerbsOptions other = PlainOptions();
  other.identity = {8};
  const absl::Status identity = bench.TryConnect(other, &ours).status();
  EXPECT_EQ(identity.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(identity.message().find("another identity"), std::string::npos) << identity;

  VerbsOptions closed = PlainOptions();
  closed.allowed_clients = NetworkList::Parse({"192.0.2.0/24"}).value();
  std::vector<Refusal> refusals;
  closed.on_refused = [&](const std::string& peer, Refusal refusal) {
    refusals.push_back(refusal);
  };
  RdmaBench closed_bench(closed);
  EXPECT_EQ(closed_bench.TryConnect(PlainOptions(), &ours).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refusals, std::vector<Refusal>{Refusal::kNotAllowed});

  const TcpAddress nobody{.host = tp2::testing::RdmaAddress(), .port = 1};
  const absl::Status absent = VerbsConnect(nobody, LengthRule(), PlainOptions(), kWaitMs).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(absent.message().find("nobody who listens"), std::string::npos) << absent;
}

TEST_F(RdmaHandshake, StopEndsAWaitingAccept) {
  auto listener =
      VerbsListen({.host = tp2::testing::RdmaAddress(), .port = 0}, LengthRule(), PlainOptions())
          .value();
  std::thread stopper([&] { listener->Stop(); });
  EXPECT_EQ(listener->Accept(-1).value(), nullptr);
  stopper.join();
}

bool IsOver(Event event) { return event == Event::kClosed || event == Event::kTruncated; }

TEST_F(RdmaFrames, AWrongKeyOrAWritePastTheRingEndsOnlyThatConnection) {
  RdmaBench bench;
  HonestPair beside(&bench);
  ASSERT_TRUE(beside.Works());
  const uint64_t past = kRingSlots * SlotStride(1004);
  for (const bool has_wrong_key : {true, false}) {
    RawClient client;
    const auto connection = bench.AcceptRaw(&client);
    ASSERT_NE(connection, nullptr);
    const std::array<std::byte, 4> header{};
    EXPECT_FALSE(client.Write(header, PackImmediate({}), has_wrong_key ? 0 : past,
                              has_wrong_key ? 0xA5A500 : 0));
    EXPECT_TRUE(IsOver(connection->Receive(kWaitMs).event)) << has_wrong_key;
    EXPECT_TRUE(beside.Works());
  }
}

TEST_F(RdmaFrames, WhoeverBreaksTheRuleOfSlotsIsCutOff) {
  RdmaBench bench;
  HonestPair beside(&bench);
  const struct {
    const char* what;
    uint32_t immediate;
  } cases[] = {
      {"a number ahead", PackImmediate({.number = 5})},
      {"a slot that was not released", PackImmediate({.slot = 1, .number = 1})},
      {"a release of nothing", PackImmediate({.is_release = true})},
      {"bits that mean nothing", 1u << 30},
  };
  for (const auto& one : cases) {
    RawClient client;
    const auto connection = bench.AcceptRaw(&client);
    ASSERT_NE(connection, nullptr);
    ASSERT_TRUE(client.Write(0, 0, PackImmediate({.slot = 1, .number = 0})));
    ASSERT_EQ(connection->Receive(kWaitMs).event, Event::kFrame) << one.what;
    (void)client.Write(0, 0, one.immediate);
    EXPECT_EQ(connection->Receive(kWaitMs).event, Event::kTruncated) << one.what;
    EXPECT_EQ(connection->Receive(kWaitMs).event, Event::kClosed) << one.what;
    EXPECT_TRUE(client.Wait(RDMA_CM_EVENT_DISCONNECTED)) << one.what;
    EXPECT_TRUE(beside.Works()) << one.what;
  }
}

TEST_F(RdmaFrames, WhatHasNoImmediateIsNeverRead) {
  RdmaBench bench;
  RawClient client;
  const auto connection = bench.AcceptRaw(&client);
  ASSERT_NE(connection, nullptr);
  ASSERT_TRUE(client.Write(8, 4, std::nullopt));
  EXPECT_EQ(connection->Receive(300).event, Event::kTimeout);
  ASSERT_TRUE(client.Write(8, 8, PackImmediate({})));
  const Received received = connection->Receive(kWaitMs);
  ASSERT_EQ(received.event, Event::kFrame);
  EXPECT_EQ(received.frame.size(), 12u);
}

TEST_F(RdmaFrames, AFrameOfAnotherLengthThanItsHeaderSaysIsTruncated) {
  RdmaBench bench;
  for (const size_t sent_body_bytes : {0u, 7u, 9u}) {
    RawClient client;
    const auto connection = bench.AcceptRaw(&client);
    ASSERT_NE(connection, nullptr);
    ASSERT_TRUE(client.Write(8, sent_body_bytes, PackImmediate({})));
    EXPECT_EQ(connection->Receive(kWaitMs).event, Event::kTruncated) << sent_body_bytes;
  }
  RawClient client;
  const auto connection = bench.AcceptRaw(&client);
  ASSERT_NE(connection, nullptr);
  ASSERT_TRUE(client.Write({}, PackImmediate({})));  // nothing but an immediate
  EXPECT_EQ(connection->Receive(kWaitMs).event, Event::kTruncated);
}

// Soft-RoCE takes no connections after it until its device is made anew: alone, at the end.
TEST_F(RdmaLink, ALinkThatGoesDownEndsConnections) {
  const char* link = std::getenv("RDMA_LINK");
  if (link == nullptr) GTEST_SKIP() << "RDMA_LINK names no link that may be taken down";
  RdmaBench bench;
  HonestPair pair(&bench);
  ASSERT_TRUE(pair.Works());
  ASSERT_EQ(std::system((std::string("ip link set down dev ") + link).c_str()), 0);
  EXPECT_TRUE(IsOver(pair.server->Receive(kWaitMs).event));
  EXPECT_TRUE(IsOver(pair.client->Receive(kWaitMs).event));
}

// A worker whose STEP loop runs.
class RunningBigServer {
 public:
  RunningBigServer() : thread_([this] { (void)worker_.server().Run(); }) {}
  ~RunningBigServer() {
    worker_.server().BeginDrain();
    worker_.server().BeginDrain();
    thread_.join();
  }
  BigServer& operator*() { return worker_; }
  BigServer* operator->() { return &worker_; }
  // False when it does not come to that.
  bool WaitForOpenSlots(uint32_t count) {
    const int64_t deadline_ms = DeadlineFrom(kWaitMs);
    while (worker_.server().health().open_slots != count) {
      if (NowMs() >= deadline_ms) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  BigServer worker_;
  std::thread thread_;
};

TEST_F(RdmaWorker, StepsOf184KilobytesDraftWhatTheyDraftInProcess) {
  constexpr int kRounds = 8;
  RunningBigServer worker;
  auto [ours, theirs] = MakeInprocPair(client::Client::ReplyRule(),
                                       server::StepServer::RequestRule(worker->options()));
  worker->server().Adopt(std::move(theirs));
  const auto in_process = NewSession(std::move(ours), worker->info());
  const auto over_rdma = NewRdmaSession(worker->address());
  ASSERT_NE(in_process, nullptr);
  ASSERT_NE(over_rdma, nullptr);
  const std::vector<int32_t> expected = DraftRounds(*in_process, kRounds);
  ASSERT_EQ(expected.size(), size_t{5} * kRounds);
  EXPECT_EQ(DraftRounds(*over_rdma, kRounds), expected);
}

TEST_F(RdmaWorker, AClientThatRewritesItsFramesHarmsNobodyElse) {
  RunningBigServer worker;
  const auto beside = NewRdmaSession(worker->address());
  ASSERT_NE(beside, nullptr);
  const std::vector<int32_t> expected = DraftRounds(*beside, 2);
  ASSERT_FALSE(expected.empty());
  std::array<std::byte, contract::kHeaderBytes + contract::kHelloBytes> hello{};
  contract::FrameHeader header;
  header.type = static_cast<uint16_t>(contract::Type::kHello);
  header.body_bytes = contract::kHelloBytes;
  contract::EncodeHeader(header, hello);
  contract::EncodeHelloRequest(client::HelloFor(worker->info()),
                               std::span(hello).subspan(contract::kHeaderBytes));
  std::array<std::byte, contract::kHeaderBytes> noise;
  noise.fill(std::byte{0xA5});
  for (int i = 0; i < 20; ++i) {
    RawClient client;
    ASSERT_TRUE(
        client
            .Connect(worker->address(), client::VerbsIdentity(worker->info().identity_digest), 4096)
            .ok());
    if (!client.Write(hello, PackImmediate({}))) continue;
    for (int write = 0; write < 10; ++write) (void)client.Write(noise, std::nullopt);
  }
  EXPECT_EQ(DraftRounds(*beside, 2), expected);
}

// rdma_peer in a role.
class Peer {
 public:
  Peer(const char* role, uint16_t port) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    output_.Reset(ends[0]);
    UniqueFd input(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    const std::string port_text = std::to_string(port);
    std::string program = std::getenv("RDMA_PEER") != nullptr ? std::getenv("RDMA_PEER") : "";
    std::string role_text = role;
    std::string port_argument = port_text;
    char* arguments[] = {program.data(), role_text.data(), port_argument.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~Peer() { Kill(); }

  // Whether it came so far as to say so.
  bool IsReady() {
    char byte = 0;
    return ::read(output_.get(), &byte, 1) == 1;
  }
  void Signal(int number) const { ::kill(pid_, number); }
  // Returns once it stands still.
  bool Stop() const {
    Signal(SIGSTOP);
    int status = 0;
    return ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  void Kill() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  UniqueFd output_;
  pid_t pid_ = 0;
};

constexpr uint16_t kPeerPort = 19'001;
const TcpAddress& PeerAddress() {
  static const TcpAddress address{.host = tp2::testing::RdmaAddress(), .port = kPeerPort};
  return address;
}

TEST_F(RdmaWorker, AKilledClientFreesItsSlots) {
  RunningBigServer worker;
  Peer client("hold", worker->address().port);
  ASSERT_TRUE(client.IsReady());
  ASSERT_TRUE(worker.WaitForOpenSlots(1));
  client.Kill();
  EXPECT_TRUE(worker.WaitForOpenSlots(0));
}

TEST_F(RdmaWorker, AKilledServerIsSeenLongBeforeTheDeadline) {
  Peer worker("serve", kPeerPort);
  ASSERT_TRUE(worker.IsReady());
  const auto session = NewRdmaSession(PeerAddress(), /*timeout_ms=*/60'000);
  ASSERT_NE(session, nullptr);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    worker.Kill();
  });
  // Nothing was asked, so nothing but the connection manager has anything to say.
  EXPECT_TRUE(IsOver(session->connection().Receive(20'000).event));
  killer.join();
  EXPECT_EQ(session->Health().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RdmaWorker, AStoppedServerIsFoundByTheDeadline) {
  Peer worker("serve", kPeerPort);
  ASSERT_TRUE(worker.IsReady());
  const auto session = NewRdmaSession(PeerAddress());
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(worker.Stop());
  session->options().timeout_ms = 2'500;  // longer than the silence after which a device is asked
  EXPECT_EQ(session->Health().status().code(), absl::StatusCode::kDeadlineExceeded);
  worker.Signal(SIGCONT);
}

TEST_F(RdmaWorker, RestartsOnTheSamePortAtOnce) {
  for (int i = 0; i < 4; ++i) {
    Peer worker("serve", kPeerPort);
    ASSERT_TRUE(worker.IsReady()) << i;
    const auto session = NewRdmaSession(PeerAddress());
    ASSERT_NE(session, nullptr) << i;
    EXPECT_EQ(DraftRounds(*session, 1).size(), 5u) << i;
    worker.Kill();
  }
}

}  // namespace
}  // namespace tp2::transport
