// Frames over every back end: bounds, partial reads, ends, deadlines and wakes. RDMA takes part
// where RDMA_ADDRESS is the address of a device, as in the virtual machine of tests/rdma.
#include "libcore/transport/transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "libcore/base/unique_fd.h"
#include "libcore/transport/inproc.h"
#include "libcore/transport/socket_util.h"
#include "libcore/transport/tcp.h"
#include "libcore/transport/verbs.h"

namespace tp2::transport {
namespace {

// Four header bytes: the body's length; the highest bit means "refuse me".
std::optional<uint32_t> TinySizer(std::span<const std::byte> header) {
  uint32_t value;
  std::memcpy(&value, header.data(), sizeof(value));
  if ((value & 0x80000000u) != 0) return std::nullopt;
  return value;
}

FrameRule TinyRule() {
  return {.header_bytes = 4, .max_body_bytes = 1000, .sizer = TinySizer, .frame_timeout_ms = 100};
}

std::array<std::byte, 4> Header(uint32_t value) {
  std::array<std::byte, 4> header;
  std::memcpy(header.data(), &value, sizeof(value));
  return header;
}

std::vector<std::byte> Body(size_t count) {
  std::vector<std::byte> body(count);
  for (size_t i = 0; i < count; ++i) body[i] = static_cast<std::byte>(i % 251);
  return body;
}

struct Pair {
  std::unique_ptr<Connection> a;
  std::unique_ptr<Connection> b;
};

enum class BackEnd { kInproc, kTcp, kVerbs };

std::vector<BackEnd> BackEndsHere() {
  std::vector<BackEnd> back_ends = {BackEnd::kInproc, BackEnd::kTcp};
  if (std::getenv("RDMA_ADDRESS") != nullptr) back_ends.push_back(BackEnd::kVerbs);
  return back_ends;
}

std::string NameOf(BackEnd back_end) {
  if (back_end == BackEnd::kInproc) return "Inproc";
  return back_end == BackEnd::kTcp ? "Tcp" : "Verbs";
}

Pair MakeVerbsPair() {
  VerbsOptions options{.identity = {7}, .max_send_bytes = 1004};
  auto listener =
      VerbsListen({.host = std::getenv("RDMA_ADDRESS"), .port = 0}, TinyRule(), options).value();
  Pair pair;
  std::thread connector([&] {
    const TcpAddress address = ParseTcpAddress(listener->address()).value();
    pair.a = VerbsConnect(address, TinyRule(), options, 5000).value();
  });
  pair.b = listener->Accept(5000).value();
  connector.join();
  return pair;
}

Pair MakePair(BackEnd back_end) {
  if (back_end == BackEnd::kVerbs) return MakeVerbsPair();
  if (back_end == BackEnd::kInproc) {
    auto [a, b] = MakeInprocPair(TinyRule(), TinyRule());
    return {std::move(a), std::move(b)};
  }
  auto listener = TcpListen({.host = "127.0.0.1", .port = 0}, TinyRule()).value();
  Pair pair;
  pair.a = TcpConnect(ParseTcpAddress(listener->address()).value(), TinyRule(), 1000).value();
  pair.b = listener->Accept(1000).value();
  return pair;
}

class TransportTest : public ::testing::TestWithParam<BackEnd> {
 protected:
  Pair pair_ = MakePair(GetParam());
};

INSTANTIATE_TEST_SUITE_P(BackEnds, TransportTest, ::testing::ValuesIn(BackEndsHere()),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TransportTest, CarriesBodiesFromNoneToTheLimit) {
  for (const size_t count : {0u, 1u, 999u, 1000u}) {
    ASSERT_TRUE(pair_.a->Send(Header(static_cast<uint32_t>(count)), Body(count), 1000).ok());
    const Received received = pair_.b->Receive(1000);
    ASSERT_EQ(received.event, Event::kFrame) << count;
    ASSERT_EQ(received.frame.size(), 4 + count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(received.frame.data()) % 64, 0u);
    const auto body = Body(count);
    EXPECT_TRUE(std::equal(body.begin(), body.end(), received.frame.begin() + 4));
    pair_.b->Release(received.frame);
  }
}

TEST_P(TransportTest, HandsOverOnlyTheHeaderOfABodyThatIsTooLarge) {
  for (const uint32_t value : {1001u, 0x7FFFFFFFu, 0x80000000u}) {
    Pair pair = MakePair(GetParam());
    ASSERT_TRUE(pair.a->Send(Header(value), {}, 1000).ok());
    const Received received = pair.b->Receive(1000);
    EXPECT_EQ(received.event, Event::kBadHeader) << value;
    EXPECT_EQ(received.frame.size(), 4u);
  }
}

TEST_P(TransportTest, HoldsTwoFramesAndNoThird) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pair_.a->Send(Header(1), Body(1), 1000).ok());
  const Received first = pair_.b->Receive(1000);
  const Received second = pair_.b->Receive(1000);
  ASSERT_EQ(first.event, Event::kFrame);
  ASSERT_EQ(second.event, Event::kFrame);
  EXPECT_NE(first.frame.data(), second.frame.data());
  EXPECT_EQ(pair_.b->Receive(0).event, Event::kTimeout);
  pair_.b->Release(first.frame);
  ASSERT_TRUE(pair_.a->Send(Header(1), Body(1), 1000).ok());
  EXPECT_EQ(pair_.b->Receive(1000).frame.data(), first.frame.data());
}

TEST_P(TransportTest, TimesOutWakesAndEnds) {
  EXPECT_EQ(pair_.b->Receive(10).event, Event::kTimeout);
  pair_.b->Wake();
  pair_.b->Wake();
  EXPECT_EQ(pair_.b->Receive(1000).event, Event::kWoken);
  EXPECT_EQ(pair_.b->Receive(10).event, Event::kTimeout);
  std::thread waker([&] { pair_.b->Wake(); });
  EXPECT_EQ(pair_.b->Receive(-1).event, Event::kWoken);
  waker.join();
  pair_.a->Shutdown();
  EXPECT_EQ(pair_.b->Receive(1000).event, Event::kClosed);
}

TEST_P(TransportTest, APollingReceiveEndsWithItsTimeoutItsWakeAndItsFrame) {
  pair_.b->SpinFor(60'000'000);  // far longer than any of these waits
  EXPECT_EQ(pair_.b->Receive(10).event, Event::kTimeout);
  std::thread waker([&] { pair_.b->Wake(); });
  EXPECT_EQ(pair_.b->Receive(5000).event, Event::kWoken);
  waker.join();
  ASSERT_TRUE(pair_.a->Send(Header(3), Body(3), 1000).ok());
  EXPECT_EQ(pair_.b->Receive(5000).event, Event::kFrame);
  pair_.b->SpinFor(0);
  EXPECT_EQ(pair_.b->Receive(10).event, Event::kTimeout);
  pair_.a->Shutdown();
  EXPECT_EQ(pair_.b->Receive(5000).event, Event::kClosed);
}

TEST_P(TransportTest, SendingToAPeerThatIsGoneFailsWithoutASignal) {
  pair_.a.reset();
  absl::Status status;
  for (int i = 0; i < 50 && status.ok(); ++i) {
    status = pair_.b->Send(Header(1000), Body(1000), 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportTest, SendingToAPeerThatDoesNotReadIsBounded) {
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok(); ++i) {
    status = pair_.a->Send(Header(1000), Body(1000), 20);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

// A plain socket on the other side, to send what no Connection would.
class RawTcpTest : public ::testing::Test {
 protected:
  RawTcpTest() {
    listener_ = TcpListen({.host = "127.0.0.1", .port = 0}, TinyRule()).value();
    raw_.Reset(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(ParseTcpAddress(listener_->address())->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(raw_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    connection_ = listener_->Accept(1000).value();
  }
  void SendRaw(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(raw_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  std::unique_ptr<Listener> listener_;
  UniqueFd raw_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(RawTcpTest, AssemblesAFrameFromSingleBytes) {
  std::thread sender([&] {
    const auto header = Header(3);
    const auto body = Body(3);
    for (const std::byte byte : header) SendRaw({&byte, 1});
    for (const std::byte byte : body) SendRaw({&byte, 1});
  });
  const Received received = connection_->Receive(1000);
  sender.join();
  ASSERT_EQ(received.event, Event::kFrame);
  EXPECT_EQ(received.frame.size(), 7u);
}

// What a connection shows of the frame that arrived last.
struct BodyCollector final : BodyObserver {
  std::vector<std::byte> bytes;
  int frames = 0;

  void BeginFrame() override {
    bytes.clear();
    ++frames;
  }
  void See(std::span<const std::byte> some) override {
    bytes.insert(bytes.end(), some.begin(), some.end());
  }
};

TEST_F(RawTcpTest, ShowsTheBodyOfEveryFrameAndNoHeader) {
  BodyCollector seen;
  connection_->ObserveBodies(&seen);
  const auto header = Header(3);
  const auto body = Body(3);
  std::thread sender([&] {
    for (const std::byte byte : header) SendRaw({&byte, 1});
    for (const std::byte byte : body) SendRaw({&byte, 1});
  });
  EXPECT_EQ(connection_->Receive(1000).event, Event::kFrame);
  sender.join();
  EXPECT_EQ(seen.bytes, body);
  SendRaw(Header(0));
  ASSERT_EQ(connection_->Receive(1000).event, Event::kFrame);
  EXPECT_TRUE(seen.bytes.empty());
  EXPECT_EQ(seen.frames, 2);
}

TEST_F(RawTcpTest, KeepsAPartialFrameAcrossTimeoutsAndWakes) {
  SendRaw(Header(3));
  EXPECT_EQ(connection_->Receive(5).event, Event::kTimeout);
  connection_->Wake();
  EXPECT_EQ(connection_->Receive(5).event, Event::kWoken);
  SendRaw(Body(3));
  EXPECT_EQ(connection_->Receive(1000).event, Event::kFrame);
}

TEST_F(RawTcpTest, SplitsFramesThatArriveTogether) {
  std::vector<std::byte> both;
  for (const uint32_t count : {2u, 0u}) {
    const auto header = Header(count);
    const auto body = Body(count);
    both.insert(both.end(), header.begin(), header.end());
    both.insert(both.end(), body.begin(), body.end());
  }
  SendRaw(both);
  EXPECT_EQ(connection_->Receive(1000).frame.size(), 6u);
  EXPECT_EQ(connection_->Receive(1000).frame.size(), 4u);
}

TEST_F(RawTcpTest, CallsASlowSenderStalled) {
  SendRaw(Header(3));
  EXPECT_EQ(connection_->Receive(-1).event, Event::kStalled);  // after frame_timeout_ms
  EXPECT_EQ(connection_->Receive(-1).event, Event::kClosed);
}

TEST_F(RawTcpTest, CallsAnEndInsideAFrameTruncated) {
  SendRaw(Header(3));
  raw_.Reset();
  EXPECT_EQ(connection_->Receive(1000).event, Event::kTruncated);
}

TEST_F(RawTcpTest, APeerThatEndedItsDirectionStillReads) {
  SendRaw(Header(0));
  ASSERT_EQ(::shutdown(raw_.get(), SHUT_WR), 0);
  EXPECT_EQ(connection_->Receive(1000).event, Event::kFrame);
  EXPECT_EQ(connection_->Receive(1000).event, Event::kClosed);
  EXPECT_TRUE(connection_->Send(Header(0), {}, 1000).ok());
  std::array<std::byte, 8> reply;
  EXPECT_EQ(::recv(raw_.get(), reply.data(), reply.size(), 0), 4);
}

TEST(TcpListen, ReportsATakenPortAndReusesAFreedOne) {
  auto listener = TcpListen({.host = "127.0.0.1", .port = 0}, TinyRule()).value();
  const TcpAddress address = ParseTcpAddress(listener->address()).value();
  EXPECT_EQ(TcpListen(address, TinyRule()).status().code(), absl::StatusCode::kUnavailable);
  auto client = TcpConnect(address, TinyRule(), 1000).value();
  listener->Accept(1000).value()->Shutdown();  // leaves a connection in TIME_WAIT
  listener.reset();
  EXPECT_TRUE(TcpListen(address, TinyRule()).ok());
}

TEST(TcpListen, StopEndsAWaitingAccept) {
  auto listener = TcpListen({.host = "127.0.0.1", .port = 0}, TinyRule()).value();
  std::thread stopper([&] { listener->Stop(); });
  EXPECT_EQ(listener->Accept(-1).value(), nullptr);
  stopper.join();
}

TEST(TcpConnect, SaysThatNobodyListens) {
  auto listener = TcpListen({.host = "127.0.0.1", .port = 0}, TinyRule()).value();
  const TcpAddress address = ParseTcpAddress(listener->address()).value();
  listener.reset();
  EXPECT_EQ(TcpConnect(address, TinyRule(), 1000).status().code(), absl::StatusCode::kUnavailable);
}

TEST(TcpAddress, ParsesHostsAndPorts) {
  EXPECT_EQ(ParseTcpAddress("127.0.0.1:18627")->port, 18627);
  EXPECT_EQ(ParseTcpAddress("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseTcpAddress("[::1]:7")->ToString(), "[::1]:7");
  for (const char* bad :
       {"", ":1", "host", "host:", "host:65536", "host:-1", "::1:5", "host:1x", "[::1]", "[]:1"}) {
    EXPECT_FALSE(ParseTcpAddress(bad).ok()) << bad;
  }
}

TEST(TcpAddress, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback({.host = host, .port = 1})) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", "example"}) {
    EXPECT_FALSE(IsLoopback({.host = host, .port = 1})) << host;
  }
}

}  // namespace
}  // namespace tp2::transport
