// The whole worker over a fake engine: every test runs in process and over TCP.
#include "libcore/server/step_server.h"

#include <gtest/gtest.h>

#include "tests/support/contract_bytes.h"
#include "tests/support/serve_fixture.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::SlotState;
using contract::Type;
using contract::WorkerState;
using testing::ClientSlot;
using testing::InsertOf;
using testing::OpenSlot;
using testing::RowsAt;
using testing::StepMaker;
using testing::Wire;

class StepServerTest : public ::testing::TestWithParam<Wire> {
 protected:
  testing::RunningServer& Start(ServerOptions options = {}) {
    running_ = std::make_unique<testing::RunningServer>(GetParam(), options);
    return *running_;
  }
  testing::FakeEngine& engine() { return running_->engine(); }

  std::unique_ptr<testing::RunningServer> running_;
};

INSTANTIATE_TEST_SUITE_P(Wires, StepServerTest, ::testing::Values(Wire::kInproc, Wire::kTcp),
                         [](const auto& wire) {
                           return wire.param == Wire::kTcp ? "Tcp" : "Inproc";
                         });

// Drafts of a fresh engine that was given the same rows.
contract::StepReplyEntry Expected(int64_t base, int row_count, uint32_t anchor, int n_out,
                                  int stream = 0) {
  testing::FakeEngine engine;
  EXPECT_TRUE(engine.ResetSlot(0, base).ok());
  const auto rows = RowsAt(base, row_count, stream);
  const StepEntry entry{.rows = {.slot = 0,
                                 .position = base,
                                 .kind = RowKind::kTaps,
                                 .row_count = row_count,
                                 .values = rows},
                        .anchor = static_cast<int32_t>(anchor)};
  const auto outputs = engine.Step({.entries = {&entry, 1}, .n_out = n_out});
  contract::StepReplyEntry expected;
  expected.tokens = outputs->entries[0].tokens;
  expected.confidence = outputs->entries[0].confidence_logit;
  expected.margin = outputs->entries[0].margin;
  for (int i = 0; i < kBlockRows; ++i) {
    expected.runner_up[i] = static_cast<uint32_t>(outputs->entries[0].runner_up[i]);
  }
  return expected;
}

void ExpectSameDrafts(const contract::StepReplyEntry& got,
                      const contract::StepReplyEntry& expected) {
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.confidence, expected.confidence);
  EXPECT_EQ(got.margin, expected.margin);
  EXPECT_EQ(got.runner_up, expected.runner_up);
}

TEST_P(StepServerTest, DraftsWhatTheEngineDraftsForTwoClientsAtOnce) {
  Start();
  auto alice = running_->NewSession();
  auto bob = running_->NewSession();
  const ClientSlot a = OpenSlot(*alice, 10);
  const ClientSlot b = OpenSlot(*bob, 500);
  EXPECT_NE(a.slot, b.slot);
  const auto from_alice = alice->Step(StepMaker().Add(a, 10, 6).message());
  const auto from_bob = bob->Step(StepMaker().Add(b, 500, 3, 8, 1).message());
  ASSERT_EQ(from_alice->code, Code::kOk);
  ASSERT_EQ(from_bob->code, Code::kOk);
  ExpectSameDrafts(from_alice->value->entries[0], Expected(10, 6, 7, 5));
  ExpectSameDrafts(from_bob->value->entries[0], Expected(500, 3, 8, 5, 1));
  EXPECT_EQ(from_alice->value->entries[0].length, 16u);
  EXPECT_EQ(from_alice->value->entries[0].window_rows, 6);
}

TEST_P(StepServerTest, DraftsForFourSlotsInRequestOrder) {
  Start();
  auto client = running_->NewSession();
  std::vector<ClientSlot> slots;
  for (int i = 0; i < 4; ++i) slots.push_back(OpenSlot(*client, 100 * i));
  StepMaker step;
  for (const int i : {3, 0, 2, 1}) step.Add(slots[i], 100 * i, i + 1, 40 + i, i);
  const auto answer = client->Step(step.message());
  ASSERT_EQ(answer->code, Code::kOk);
  int at = 0;
  for (const int i : {3, 0, 2, 1}) {
    EXPECT_EQ(answer->value->entries[at].slot, slots[i].slot);
    ExpectSameDrafts(answer->value->entries[at++], Expected(100 * i, i + 1, 40 + i, 5, i));
  }
}

TEST_P(StepServerTest, LeavesPositionsBeyondNOutAndUnwantedFieldsEmpty) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  step.Add(slot, 0, 2).message().n_out = 2;
  step.message().flags = 0;
  contract::StepMessage message = step.message();
  message.flags = 0;
  const auto answer = client->Step(message);
  ASSERT_EQ(answer->code, Code::kOk);
  const auto& entry = answer->value->entries[0];
  EXPECT_EQ(entry.tokens[1], Expected(0, 2, 7, 5).tokens[1]);
  EXPECT_EQ(entry.tokens[2], -1);
  EXPECT_EQ(entry.confidence[0], 0);
  EXPECT_EQ(entry.margin[0], 0);
  EXPECT_EQ(entry.runner_up[0], 0u);
}

TEST_P(StepServerTest, InsertsRollsBackAndReportsSlots) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  const auto rows = RowsAt(0, 20);
  const auto inserted = client->Insert(InsertOf(slot, 0, rows));
  ASSERT_EQ(inserted->code, Code::kOk);
  EXPECT_EQ(inserted->value->window_rows, 8);
  EXPECT_EQ(inserted->value->length, 20u);
  const auto rolled = client->Step(StepMaker().Add(slot, 12, 0).message());
  ASSERT_EQ(rolled->code, Code::kOk);
  EXPECT_EQ(rolled->value->entries[0].length, 12u);
  ExpectSameDrafts(rolled->value->entries[0], Expected(0, 12, 7, 5));
  const auto slots = client->Slots();
  ASSERT_EQ(slots->value->slots.size(), 1u);
  EXPECT_EQ(slots->value->slots[0].state, SlotState::kLive);
  EXPECT_EQ(slots->value->slots[0].length, 12u);
}

TEST_P(StepServerTest, ABadEntryRunsNothing) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot first = OpenSlot(*client);
  ClientSlot second = OpenSlot(*client);
  second.generation += 100;
  const auto answer = client->Step(StepMaker().Add(first, 0, 2).Add(second, 0, 2, 7, 1).message());
  EXPECT_EQ(answer->code, Code::kBadEntry);
  EXPECT_EQ(answer->value->entries[0].status, static_cast<uint16_t>(Code::kNotRun));
  EXPECT_EQ(answer->value->entries[1].status, static_cast<uint16_t>(Code::kStaleGeneration));
  EXPECT_EQ(engine().steps_started, 0);
  EXPECT_EQ(client->Slots()->value->slots[0].length, 0u);
}

TEST_P(StepServerTest, RefusesStrangersByName) {
  Start();
  auto hello = client::HelloFor(engine().info());
  hello.identity[0] ^= 1;
  const auto answer = running_->NewClient()->Hello(hello);
  EXPECT_EQ(answer->code, Code::kIdentityMismatch);
  EXPECT_EQ(answer->value->mismatch_field, contract::kFieldIdentity);
  EXPECT_EQ(answer->value->identity, engine().info().identity_digest);
  hello = client::HelloFor(engine().info());
  hello.config[0] ^= 1;
  EXPECT_EQ(running_->NewClient()->Hello(hello)->code, Code::kConfigMismatch);
  hello = client::HelloFor(engine().info());
  hello.lowest_version = hello.highest_version = 0x0200;
  auto client = running_->NewClient();
  EXPECT_EQ(client->Hello(hello)->code, Code::kVersionUnsupported);
  EXPECT_FALSE(client->Health().ok());  // closed after the reply
}

TEST_P(StepServerTest, NeedsHelloFirstAndOnlyOnce) {
  Start();
  auto client = running_->NewClient();
  EXPECT_EQ(client->Open({})->code, Code::kBadRequest);
  auto session = running_->NewSession();
  auto header = session->NextHeader(Type::kHello);
  std::array<std::byte, contract::kHelloBytes> body;
  EncodeHelloRequest(client::HelloFor(engine().info()), body);
  EXPECT_EQ(session->Call({.header = header, .head = body, .rows = {}})->code(), Code::kBadRequest);
  header.session = 0;
  EXPECT_EQ(session->Call({.header = header, .head = body, .rows = {}})->code(), Code::kBadRequest);
}

TEST_P(StepServerTest, RefusesAnotherSessionsNumberAndUnknownTypes) {
  Start();
  auto client = running_->NewSession();
  auto header = client->NextHeader(Type::kSlots);
  header.session ^= 1;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kBadRequest);
  header.type = 77;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kBadRequest);
  header = client->NextHeader(Type::kSlots);
  header.seq = 1;  // neither refusal used a number
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kOk);
}

TEST_P(StepServerTest, AnswersHealthAndPingWithoutASession) {
  Start();
  auto client = running_->NewClient();
  const auto health = client->Health();
  ASSERT_EQ(health->code, Code::kOk);
  EXPECT_EQ(health->value->state, WorkerState::kReady);
  EXPECT_EQ(health->value->identity, engine().info().identity_digest);
  const auto payload = testing::Rows(64, 1);
  EXPECT_EQ(client->Ping(payload)->body, payload);
  const auto large = testing::Rows(65, 1);
  EXPECT_EQ(client->Ping(large)->code(), Code::kBadFrame);
}

TEST_P(StepServerTest, HealthOvertakesAStepAndASecondStepIsBusy) {
  Start();
  engine().step_ms = 300;
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  contract::StepMessage& message = step.Add(slot, 0, 1).message();
  std::array<std::byte, contract::StepHeadBytes(1)> head;
  EncodeStepHead(message, head);
  const auto first = client->NextHeader(Type::kStep);
  ASSERT_TRUE(client->Send({.header = first, .head = head, .rows = message.row_area}).ok());
  while (engine().steps_started == 0) std::this_thread::yield();
  const auto health = client->Health();
  EXPECT_EQ(health->code, Code::kOk);
  auto second = first;
  second.seq += 1;
  second.body_hash = 0;
  const auto busy = client->Call({.header = second, .head = head, .rows = message.row_area});
  EXPECT_EQ(busy->code(), Code::kBusy);
  const auto done = client->Receive();
  EXPECT_EQ(done->code(), Code::kOk);
  EXPECT_EQ(done->header.seq, first.seq);
}

TEST_P(StepServerTest, ReplaysTheLastReplyWithoutRunningAgain) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  contract::StepMessage& message = step.Add(slot, 0, 1).message();
  std::array<std::byte, contract::StepHeadBytes(1)> head;
  EncodeStepHead(message, head);
  const auto header = client->NextHeader(Type::kStep);
  const auto first = client->Call({.header = header, .head = head, .rows = message.row_area});
  const auto again = client->Call({.header = header, .head = head, .rows = message.row_area});
  ASSERT_EQ(first->code(), Code::kOk);
  EXPECT_FALSE(first->is_cached());
  EXPECT_TRUE(again->is_cached());
  EXPECT_EQ(again->body, first->body);
  EXPECT_EQ(engine().steps_started, 1);
}

TEST_P(StepServerTest, EndsTheSessionWhenSeqIsWrong) {
  Start();
  const auto code_for = [&](int64_t shift, Type type) {
    auto client = running_->NewSession();
    EXPECT_EQ(client->Slots()->code, Code::kOk);
    EXPECT_EQ(client->Slots()->code, Code::kOk);
    auto header = client->NextHeader(type);
    header.seq = static_cast<uint64_t>(static_cast<int64_t>(header.seq) + shift);
    const Code code = client->Call({.header = header, .head = {}, .rows = {}})->code();
    EXPECT_FALSE(client->Health().ok());
    return code;
  };
  EXPECT_EQ(code_for(+1, Type::kSlots), Code::kSeqGap);
  EXPECT_EQ(code_for(-2, Type::kSlots), Code::kSeqOld);
  EXPECT_EQ(code_for(-1, Type::kBye), Code::kSeqConflict);
}

TEST_P(StepServerTest, RefusesBodiesThatDoNotMatchTheirHash) {
  Start();
  auto client = running_->NewSession();
  auto header = client->NextHeader(Type::kSlots);
  header.body_hash = 1;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kBodyHash);
}

TEST_P(StepServerTest, RefusesFramesThatAreTooLarge) {
  Start();
  auto client = running_->NewSession();
  contract::FrameHeader header = client->NextHeader(Type::kInsert);
  header.flags = 0;
  header.body_bytes = contract::kMaxBodyBytes + 1;
  std::array<std::byte, contract::kHeaderBytes> bytes;
  EncodeHeader(header, bytes);
  ASSERT_TRUE(client->connection().Send(bytes, {}, 1000).ok());
  const auto reply = client->Receive();
  EXPECT_EQ(reply->code(), Code::kTooLarge);
  EXPECT_FALSE(client->Receive().ok());
}

TEST_P(StepServerTest, AnswersGarbageOnceAndKeepsServingOthers) {
  Start();
  auto other = running_->NewSession();
  auto client = running_->NewClient();
  const auto garbage = testing::Rows(64, 1);
  ASSERT_TRUE(client->connection().Send(garbage, {}, 1000).ok());
  EXPECT_EQ(client->Receive()->code(), Code::kBadFrame);
  EXPECT_FALSE(client->Receive().ok());
  EXPECT_EQ(other->Slots()->code, Code::kOk);
}

TEST_P(StepServerTest, EndsTheSessionOnReservedBytes) {
  Start();
  auto client = running_->NewSession();
  std::array<std::byte, contract::kOpenBytes> body{};
  body[31] = std::byte{1};
  EXPECT_EQ(
      client->Call({.header = client->NextHeader(Type::kOpen), .head = body, .rows = {}})->code(),
      Code::kBadFrame);
  EXPECT_FALSE(client->Receive().ok());
}

TEST_P(StepServerTest, RefusesTheDebugFlagItDidNotGrant) {
  Start();
  auto client = running_->NewSession();
  auto header = client->NextHeader(Type::kSlots);
  header.flags |= contract::kFlagDebug;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kUnsupported);
}

TEST_P(StepServerTest, OpensEightSlotsForOneOrManySessionsThenIsFull) {
  Start();
  std::vector<std::unique_ptr<client::Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(running_->NewSession());
    OpenSlot(*clients.back());
  }
  EXPECT_EQ(clients[0]->Open({})->code, Code::kSlotsFull);
  EXPECT_EQ(clients[0]->Health()->value->open_slots, 8u);
  EXPECT_EQ(clients[0]->Open({.slot = 8})->code, Code::kNoSuchSlot);
}

TEST_P(StepServerTest, ADisconnectFreesTheSlotsAndOldGenerationsStayDead) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot old = OpenSlot(*client);
  client.reset();
  client = running_->NewSession();
  while (client->Health()->value->open_slots != 0) std::this_thread::yield();
  EXPECT_EQ(client->Insert(InsertOf(old, 0, RowsAt(0, 1)))->code, Code::kNoSuchSlot);
  const ClientSlot fresh = OpenSlot(*client);
  EXPECT_EQ(fresh.slot, old.slot);
  EXPECT_EQ(client->Insert(InsertOf(old, 0, RowsAt(0, 1)))->code, Code::kStaleGeneration);
  EXPECT_EQ(client->Insert(InsertOf(fresh, 0, RowsAt(0, 1)))->code, Code::kOk);
}

TEST_P(StepServerTest, ClosesSlotsOnceAndSaysSoTheSecondTime) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  const contract::CloseRequest close{.slot = slot.slot, .generation = slot.generation};
  EXPECT_FALSE(client->Close(close)->value->was_closed_before);
  EXPECT_TRUE(client->Close(close)->value->was_closed_before);
  EXPECT_EQ(client->Close({.slot = slot.slot, .generation = 1})->code, Code::kNoSuchSlot);
}

TEST_P(StepServerTest, ByeEndsTheSession) {
  Start();
  auto client = running_->NewSession();
  OpenSlot(*client);
  EXPECT_EQ(client->Bye()->code(), Code::kOk);
  EXPECT_FALSE(client->Receive().ok());
  auto other = running_->NewSession();
  while (other->Health()->value->open_slots != 0) std::this_thread::yield();
  EXPECT_EQ(other->Health()->value->sessions, 1u);
}

TEST_P(StepServerTest, RefusesWorkWhoseBudgetIsSpent) {
  Start();
  engine().step_ms = 100;
  auto slow = running_->NewSession();
  auto hurried = running_->NewSession();
  const ClientSlot a = OpenSlot(*slow);
  const ClientSlot b = OpenSlot(*hurried);
  std::thread step([&] { (void)slow->Step(StepMaker().Add(a, 0, 1).message()); });
  while (engine().steps_started == 0) std::this_thread::yield();
  hurried->options().budget_us = 1;  // spent while the other's STEP runs
  EXPECT_EQ(hurried->Step(StepMaker().Add(b, 0, 1).message())->code, Code::kDeadline);
  step.join();
  hurried->options().budget_us = 60'000'000;
  EXPECT_EQ(hurried->Step(StepMaker().Add(b, 0, 1).message())->code, Code::kOk);
}

TEST_P(StepServerTest, AFailedStepLeavesEverySlotAsItWas) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  ASSERT_EQ(client->Insert(InsertOf(slot, 0, RowsAt(0, 30)))->code, Code::kOk);
  engine().failing_steps = 1;
  const auto failed = client->Step(StepMaker().Add(slot, 30, 2).message());
  EXPECT_EQ(failed->code, Code::kInternal);
  EXPECT_EQ(failed->value->entries[0].status, static_cast<uint16_t>(Code::kInternal));
  EXPECT_EQ(failed->value->entries[0].length, 30u);
  EXPECT_EQ(failed->value->entries[0].tokens[0], -1);
  EXPECT_EQ(client->Health()->value->state, WorkerState::kDegraded);
  // A rollback that needs the ring's slack still works, and drafts see the old rows.
  const auto again = client->Step(StepMaker().Add(slot, 14, 0).message());
  ASSERT_EQ(again->code, Code::kOk);
  ExpectSameDrafts(again->value->entries[0], Expected(0, 14, 7, 5));
  EXPECT_EQ(client->Health()->value->state, WorkerState::kReady);
}

TEST_P(StepServerTest, AFailedInsertIsUndoneToo) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  ASSERT_EQ(client->Insert(InsertOf(slot, 0, RowsAt(0, 4)))->code, Code::kOk);
  engine().failing_inserts = 1;
  EXPECT_EQ(client->Insert(InsertOf(slot, 4, RowsAt(4, 1)))->code, Code::kInternal);
  const auto step = client->Step(StepMaker().Add(slot, 4, 0).message());
  ASSERT_EQ(step->code, Code::kOk);
  ExpectSameDrafts(step->value->entries[0], Expected(0, 4, 7, 5));
}

TEST_P(StepServerTest, ASlotThatCannotBeRestoredNeedsResync) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  const ClientSlot other = OpenSlot(*client);
  engine().failing_steps = 1;
  engine().failing_resets = 1;
  const auto failed = client->Step(StepMaker().Add(slot, 0, 2).message());
  EXPECT_EQ(failed->code, Code::kInternal);
  EXPECT_EQ(failed->value->entries[0].status, static_cast<uint16_t>(Code::kNeedsResync));
  EXPECT_NE(failed->value->entries[0].generation, slot.generation);
  EXPECT_EQ(client->Insert(InsertOf(slot, 0, RowsAt(0, 1)))->code, Code::kNeedsResync);
  EXPECT_EQ(client->Insert(InsertOf(other, 0, RowsAt(0, 1)))->code, Code::kOk);
  EXPECT_EQ(client->Close({.slot = slot.slot, .generation = slot.generation})->code, Code::kOk);
  EXPECT_EQ(client->Open({})->code, Code::kOk);
}

TEST_P(StepServerTest, ThreeFailuresInARowEndTheServer) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  engine().failing_steps = 2;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kInternal);
  }
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kOk);
  engine().failing_steps = 3;
  for (int i = 0; i < 3; ++i) {
    const auto answer = client->Step(StepMaker().Add(slot, 1, 1).message());
    EXPECT_EQ(answer->code, Code::kInternal);
    EXPECT_EQ(answer->value->failures_in_a_row, static_cast<uint32_t>(i + 1));
  }
  EXPECT_EQ(running_->Join(), ServeEnd::kTooManyFailures);
  EXPECT_FALSE(client->Health().ok());
}

TEST_P(StepServerTest, ALostEngineEndsTheServerAtOnce) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  engine().failing_steps = 1;
  engine().dies_on_failure = true;
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kUnhealthy);
  EXPECT_EQ(running_->Join(), ServeEnd::kEngineLost);
}

TEST_P(StepServerTest, ADrainRefusesNewSlotsAndEndsWhenTheLastIsClosed) {
  Start({.drain_ms = 60'000});
  auto client = running_->NewSession();
  auto late = running_->NewClient();
  const ClientSlot slot = OpenSlot(*client);
  running_->server().BeginDrain();
  while (client->Health()->value->state != WorkerState::kDraining) std::this_thread::yield();
  EXPECT_EQ(client->Open({})->code, Code::kDraining);
  EXPECT_EQ(late->Hello(client::HelloFor(engine().info()))->code, Code::kDraining);
  const auto step = client->Step(StepMaker().Add(slot, 0, 1).message());
  EXPECT_EQ(step->code, Code::kOk);
  EXPECT_NE(step->header.flags & contract::kFlagDraining, 0u);
  EXPECT_EQ(client->Close({.slot = slot.slot, .generation = slot.generation})->code, Code::kOk);
  EXPECT_EQ(running_->Join(), ServeEnd::kDrained);
}

TEST_P(StepServerTest, ADrainIsBoundedAndFinishesTheStepUnderWay) {
  Start({.drain_ms = 50});
  engine().step_ms = 200;
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  std::thread drain([&] {
    while (engine().steps_started == 0) std::this_thread::yield();
    running_->server().BeginDrain();
  });
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kOk);
  drain.join();
  EXPECT_EQ(running_->Join(), ServeEnd::kDrained);
}

TEST_P(StepServerTest, ClosesIdleConnections) {
  ServerOptions options;
  options.service.idle_close_ms = 50;
  Start(options);
  auto client = running_->NewSession();
  EXPECT_FALSE(client->Receive().ok());
}

TEST_P(StepServerTest, RefusesConnectionsBeyondTheLimit) {
  Start({.max_connections = 1});
  auto first = running_->NewSession();
  auto second = running_->NewClient();
  EXPECT_FALSE(second->Health().ok());
  EXPECT_EQ(first->Slots()->code, Code::kOk);
}

}  // namespace
}  // namespace tp2::server
