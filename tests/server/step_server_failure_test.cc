// The worker over a fake engine, failing and ending: in process and over TCP.
#include <gtest/gtest.h>

#include "tests/server/step_server_fixture.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::WorkerState;
using testing::ClientSlot;
using testing::InsertOf;
using testing::OpenSlot;
using testing::StepMaker;

class StepServerFailure : public StepServerTest {};

INSTANTIATE_TEST_SUITE_P(Wires, StepServerFailure, ::testing::Values(Wire::kInproc, Wire::kTcp),
                         WireName);

TEST_P(StepServerFailure, AFailedStepLeavesEverySlotAsItWas) {
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

TEST_P(StepServerFailure, AFailedInsertIsUndoneToo) {
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

TEST_P(StepServerFailure, ASlotThatCannotBeRestoredNeedsResync) {
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

TEST_P(StepServerFailure, ThreeFailuresInARowEndTheServer) {
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

TEST_P(StepServerFailure, ALostEngineEndsTheServerAtOnce) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  engine().failing_steps = 1;
  engine().dies_on_failure = true;
  EXPECT_EQ(client->Step(StepMaker().Add(slot, 0, 1).message())->code, Code::kUnhealthy);
  EXPECT_EQ(running_->Join(), ServeEnd::kEngineLost);
}

TEST_P(StepServerFailure, ADrainRefusesNewSlotsAndEndsWhenTheLastIsClosed) {
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

TEST_P(StepServerFailure, ADrainIsBoundedAndFinishesTheStepUnderWay) {
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

TEST_P(StepServerFailure, ClosesIdleConnections) {
  ServerOptions options;
  options.service.idle_close_ms = 50;
  Start(options);
  auto client = running_->NewSession();
  EXPECT_FALSE(client->Receive().ok());
}

// A header that announces a body, and nothing after it.
void SendHalfAFrame(client::Client& client) {
  contract::FrameHeader header = client.NextHeader(contract::Type::kInsert);
  header.flags = 0;
  header.body_bytes = 100;
  std::array<std::byte, contract::kHeaderBytes> bytes;
  EncodeHeader(header, bytes);
  ASSERT_TRUE(client.connection().Send(bytes, {}, 1000).ok());
}

TEST_P(StepServerFailure, AnEndInsideAFrameFreesTheSlots) {
  Start();
  auto client = running_->NewSession();
  auto other = running_->NewSession();
  OpenSlot(*client);
  SendHalfAFrame(*client);
  client.reset();
  while (other->Health()->value->open_slots != 0) std::this_thread::yield();
  EXPECT_EQ(other->Slots()->code, Code::kOk);
}

TEST_P(StepServerFailure, ASlowSenderLosesItsConnectionAndNobodyElseDoes) {
  Start({.frame_timeout_ms = 50});
  auto client = running_->NewSession();
  auto other = running_->NewSession();
  SendHalfAFrame(*client);
  EXPECT_FALSE(client->Receive().ok());
  EXPECT_EQ(other->Slots()->code, Code::kOk);
}

}  // namespace
}  // namespace tp2::server
