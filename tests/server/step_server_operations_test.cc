// What operators rely on: canaries, the rule of strikes, feedback, traces, log limits, the admin
// port.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "libcore/base/json.h"
#include "libcore/server/admin_pages.h"
#include "tests/server/step_server_fixture.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::WorkerState;
using testing::ClientSlot;
using testing::OpenSlot;
using testing::StepMaker;

class StepServerOperations : public StepServerTest {};

INSTANTIATE_TEST_SUITE_P(Wires, StepServerOperations, ::testing::Values(Wire::kInproc, Wire::kTcp),
                         WireName);

TEST_P(StepServerOperations, AGoodStepBetweenFailuresKeepsTheWorkerAlive) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  for (int time = 0; time < 5; ++time) {
    engine().failing_steps = 2;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kInternal);
    }
    EXPECT_EQ(client->Health()->value->failures_in_a_row, 2u);
    EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kOk);
  }
  EXPECT_EQ(client->Health()->value->state, WorkerState::kReady);
}

TEST_P(StepServerOperations, EverySlotOfAFailedStepIsPutBackAndOthersAreNotTouched) {
  Start();
  auto client = running_->NewSession();
  auto other = running_->NewSession();
  const ClientSlot first = OpenSlot(*client);
  const ClientSlot second = OpenSlot(*client, 50);
  const ClientSlot third = OpenSlot(*other, 90);
  ASSERT_EQ(client->Step(StepMaker().Add(first, 0, 3).Add(second, 50, 4, 7, 1).message())->code,
            Code::kOk);
  ASSERT_EQ(other->Step(StepMaker().Add(third, 90, 2, 7, 2).message())->code, Code::kOk);
  engine().failing_steps = 1;
  const auto failed = client->Step(StepMaker().Add(first, 3, 1).Add(second, 52, 5, 7, 1).message());
  EXPECT_EQ(failed->code, Code::kInternal);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(failed->value->entries[i].tokens[0], -1);
  EXPECT_EQ(failed->value->entries[1].length, 54u);
  const auto a = client->Step(StepMaker().Add(first, 3, 0).message());
  const auto b = client->Step(StepMaker().Add(second, 54, 0, 7, 1).message());
  const auto c = other->Step(StepMaker().Add(third, 92, 0, 7, 2).message());
  ExpectSameDrafts(a->value->entries[0], Expected(0, 3, 7, 5));
  ExpectSameDrafts(b->value->entries[0], Expected(50, 4, 7, 5, 1));
  ExpectSameDrafts(c->value->entries[0], Expected(90, 2, 7, 5, 2));
}

TEST_P(StepServerOperations, APoisonedWorkerRefusesEverybodyUntilItIsGone) {
  Start();
  auto client = running_->NewSession();
  auto stranger = running_->NewClient();
  const ClientSlot slot = OpenSlot(*client);
  engine().failing_steps = 1;
  engine().dies_on_failure = true;
  const auto answer = client->Step(StepMaker().Add(slot, 0, 1).message());
  EXPECT_EQ(answer->code, Code::kUnhealthy);
  EXPECT_EQ(answer->value->entries[0].tokens[0], -1);
  EXPECT_EQ(running_->Join(), ServeEnd::kEngineLost);
  EXPECT_EQ(running_->server().NotReadyReason(), "state POISONED");
  EXPECT_FALSE(stranger->Hello(client::HelloFor(engine().info())).ok());
}

TEST_P(StepServerOperations, AnIdleWorkerDraftsACanaryAndKeepsItsSlotsAsTheyWere) {
  Start({.canary_ms = 20});
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  ASSERT_EQ(client->Step(StepMaker().Add(slot, 0, 3).message())->code, Code::kOk);
  const uint64_t steps = client->Health()->value->steps;
  while (running_->server().counts().canaries < 5) std::this_thread::yield();
  EXPECT_EQ(client->Health()->value->steps, steps);
  EXPECT_EQ(running_->server().NotReadyReason(), "");
  const auto again = client->Step(StepMaker().Add(slot, 3, 0).message());
  ExpectSameDrafts(again->value->entries[0], Expected(0, 3, 7, 5));
}

TEST_P(StepServerOperations, TheEngineIsMaintainedInGapsAndNotBetweenStepsThatFollowEachOther) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  while (engine().maintained < 3) std::this_thread::yield();
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kOk);
  engine().failing_maintenance = 1;
  while (client->Health()->value->failures_in_a_row == 0) std::this_thread::yield();
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 1, 1).message())->code, Code::kOk);
  EXPECT_EQ(client->Health()->value->failures_in_a_row, 0u);
}

TEST_P(StepServerOperations, EveryThreadThatEntersTheEngineIsMadeKnownToItOnce) {
  Start();
  auto first = running_->NewSession();
  auto second = running_->NewSession();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(first->Slots()->code, Code::kOk);
  EXPECT_EQ(second->Slots()->code, Code::kOk);
  // The controller runs on a thread of its own and takes over whatever finds the engine taken.
  EXPECT_GE(engine().threads_used, 1);
  EXPECT_LE(engine().threads_used, 3);
}

TEST_P(StepServerOperations, AConnectionWhoseOwnThreadIsInALongStepStillAnswersPings) {
  Start();
  engine().step_ms = 400;
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  step.Add(slot, 0, 1);
  const auto header = client->NextHeader(contract::Type::kStep);
  ASSERT_TRUE(
      client->Send({.header = header, .head = step.Head(), .rows = step.message().row_area}).ok());
  while (engine().steps_started == 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    const auto ping = client->Ping({});
    ASSERT_TRUE(ping.ok());
    EXPECT_EQ(ping->header.type, static_cast<uint16_t>(contract::Type::kPing) | 0x8000);
  }
  EXPECT_EQ(client->Receive()->code(), Code::kOk);
}

// The watchdog is fed by ticks: an engine that hangs in a connection's thread must stop them too.
TEST_P(StepServerOperations, NoTickComesWhileAStepHangsInAConnectionsThread) {
  std::atomic<int> ticks{0};
  ServerOptions options;
  options.tick = [&ticks] { ++ticks; };
  Start(options);
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  engine().step_ms = 1000;
  auto step = std::async(std::launch::async,
                         [&] { return client->Step(StepMaker().Add(slot, 0, 1).message())->code; });
  while (engine().steps_started == 0) std::this_thread::yield();
  // A tick that was on its way when the STEP began may still come.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int before = ticks;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const int during = ticks;
  if (step.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) {
    EXPECT_EQ(during, before);
  }
  EXPECT_EQ(step.get(), Code::kOk);
  while (ticks == during) std::this_thread::yield();
}

TEST_P(StepServerOperations, AClientThatLeavesDuringItsOwnLongStepLeavesNothingBehind) {
  Start();
  engine().step_ms = 200;
  auto other = running_->NewSession();
  for (int i = 0; i < 3; ++i) {
    auto client = running_->NewSession();
    const ClientSlot slot = OpenSlot(*client);
    StepMaker step;
    step.Add(slot, 0, 1);
    const int before = engine().steps_started;
    const auto header = client->NextHeader(contract::Type::kStep);
    ASSERT_TRUE(
        client->Send({.header = header, .head = step.Head(), .rows = step.message().row_area})
            .ok());
    while (engine().steps_started == before) std::this_thread::yield();
    client.reset();
    while (other->Health()->value->open_slots != 0) std::this_thread::yield();
  }
  EXPECT_EQ(other->Slots()->code, Code::kOk);
}

TEST_P(StepServerOperations, SpinningConnectionsDraftTheSameAndSleepWithoutSlots) {
  ServerOptions options;
  options.spin_ms = 20;
  options.spin_threads = 1;
  Start(options);
  auto alice = running_->NewSession();
  auto bob = running_->NewSession();
  const ClientSlot a = OpenSlot(*alice);
  const ClientSlot b = OpenSlot(*bob, 50);
  for (int i = 0; i < 20; ++i) {
    const auto first = alice->Step(StepMaker().Add(a, i, 1).message());
    const auto second = bob->Step(StepMaker().Add(b, 50 + i, 1, 7, 1).message());
    ExpectSameDrafts(first->value->entries[0], Expected(0, i + 1, 7, 5));
    ExpectSameDrafts(second->value->entries[0], Expected(50, i + 1, 7, 5, 1));
  }
}

TEST_P(StepServerOperations, CanariesThatFailAreStrikes) {
  Start({.canary_ms = 20});
  engine().failing_steps = 1000;
  EXPECT_EQ(running_->Join(), ServeEnd::kTooManyFailures);
}

TEST_P(StepServerOperations, AcceptedDraftsAreCountedPerPosition) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  const auto step = [&](int64_t position, int n_out, uint16_t accepted_plus_one) {
    StepMaker maker;
    contract::StepMessage& message = maker.Add(slot, position, 1).message();
    message.n_out = static_cast<uint16_t>(n_out);
    message.entries[0].accepted_plus_one = accepted_plus_one;
    EXPECT_EQ(client->Step(message)->code, Code::kOk);
  };
  step(0, 5, 3);  // no block before it: impossible
  step(1, 3, 3);  // of five, two accepted
  step(2, 5, 0);  // says nothing
  step(3, 5, 6);  // of five, five
  const Counts counts = running_->server().counts();
  EXPECT_EQ(counts.judged_drafts, (std::array<uint64_t, 5>{2, 2, 2, 2, 2}));
  EXPECT_EQ(counts.accepted_drafts, (std::array<uint64_t, 5>{2, 2, 1, 1, 1}));
  EXPECT_EQ(counts.impossible_feedback, 1u);
}

TEST_P(StepServerOperations, TracesTheLastSteps) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  for (int i = 0; i < 3; ++i) (void)client->Step(StepMaker().Add(slot, i, 1).message());
  const Json trace = Json::parse(running_->server().trace().ToChromeJson());
  int engine_events = 0;
  for (const Json& event : trace["traceEvents"]) {
    engine_events += event["ph"] == "X" && event["name"] == "engine" ? 1 : 0;
  }
  EXPECT_EQ(engine_events, 3);
}

TEST(TraceRing, KeepsTheNewestSteps) {
  TraceRing ring;
  const uint64_t steps = TraceRing::kSteps + 10;
  for (uint64_t i = 0; i < steps; ++i) ring.Add({.round = i});
  const Json trace = Json::parse(ring.ToChromeJson());
  uint64_t lowest = steps;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") lowest = std::min(lowest, event["args"]["round"].get<uint64_t>());
  }
  EXPECT_EQ(lowest, 10u);
}

TEST(LogLimit, LetsAFewThroughPerPeriodAndCountsTheRest) {
  FakeClock clock;
  LogLimit limit(&clock, 2, 1000);
  EXPECT_EQ(limit.Pass(), 0);
  EXPECT_EQ(limit.Pass(), 0);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(limit.Pass(), std::nullopt);
  clock.AdvanceNs(1'000'000'000);
  EXPECT_EQ(limit.Pass(), 7);
  EXPECT_EQ(limit.Pass(), 0);
}

// One request over a socket; everything that came back.
std::string Fetch(const std::string& address, const std::string& request) {
  const transport::TcpAddress parsed = transport::ParseTcpAddress(address).value();
  const transport::FrameRule rule{.header_bytes = 1, .max_body_bytes = 0, .sizer = [](auto) {
                                    return std::optional<uint32_t>(0);
                                  }};
  auto connection = transport::TcpConnect(parsed, rule, 5000).value();
  EXPECT_TRUE(connection->Send(std::as_bytes(std::span(request)), {}, 5000).ok());
  std::string text;
  while (true) {
    const transport::Received received = connection->Receive(5000);
    if (received.event != transport::Event::kFrame) return text;
    text.push_back(static_cast<char>(received.frame[0]));
    connection->Release(received.frame);
  }
}

TEST(AdminHttp, AnswersGetAndRefusesTheRest) {
  const auto admin =
      AdminHttp::Start({.host = "127.0.0.1", .port = 0}, [](const std::string& path) {
        return HttpResponse{.status = path == "/a" ? 200 : 404, .body = "<" + path + ">"};
      });
  ASSERT_TRUE(admin.ok()) << admin.status();
  const auto fetch = [&](const std::string& request) {
    return Fetch((*admin)->address(), request);
  };
  EXPECT_EQ(fetch("GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 12), "HTTP/1.1 200");
  EXPECT_EQ(fetch("GET /b HTTP/1.1\r\n\r\n").substr(0, 12), "HTTP/1.1 404");
  EXPECT_EQ(fetch("POST /a HTTP/1.1\r\n\r\n").substr(0, 12), "HTTP/1.1 405");
  EXPECT_EQ(fetch("nonsense\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(fetch(std::string(AdminHttp::kMaxRequestBytes + 1, 'x')).substr(0, 12), "HTTP/1.1 400");
  const std::string head = fetch("HEAD /a HTTP/1.1\r\n\r\n");
  EXPECT_EQ(head.find("</a>"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 4"), std::string::npos);
}

TEST(AdminHttp, IsForLoopbackOnly) {
  EXPECT_EQ(AdminHttp::Start({.host = "0.0.0.0", .port = 0}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AdminHttp, SilentPeersDoNotKeepOthersWaiting) {
  const auto admin = AdminHttp::Start({.host = "127.0.0.1", .port = 0},
                                      [](const std::string&) { return HttpResponse{}; });
  ASSERT_TRUE(admin.ok());
  const transport::TcpAddress address = transport::ParseTcpAddress((*admin)->address()).value();
  const transport::FrameRule rule{.header_bytes = 1, .max_body_bytes = 0, .sizer = nullptr};
  std::vector<std::unique_ptr<transport::Connection>> silent;
  for (size_t i = 0; i + 1 < AdminHttp::kMaxConnections; ++i) {
    silent.push_back(transport::TcpConnect(address, rule, 5000).value());
  }
  EXPECT_EQ(Fetch((*admin)->address(), "GET / HTTP/1.1\r\n\r\n").substr(0, 12), "HTTP/1.1 200");
}

TEST(AdminPages, EscapeWhatClientsAndEnginesSay) {
  EXPECT_EQ(EscapeHtml("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
}

}  // namespace
}  // namespace tp2::server
