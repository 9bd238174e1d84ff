// The worker over a fake engine, serving: every test runs in process and over TCP.
#include <gtest/gtest.h>

#include "tests/server/step_server_fixture.h"
#include "tests/support/contract_bytes.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::SlotState;
using contract::Type;
using contract::WorkerState;
using testing::ClientSlot;
using testing::InsertOf;
using testing::OpenSlot;
using testing::StepMaker;

class StepServing : public StepServerTest {};

INSTANTIATE_TEST_SUITE_P(Wires, StepServing, ::testing::Values(Wire::kInproc, Wire::kTcp),
                         WireName);

TEST_P(StepServing, DraftsWhatTheEngineDraftsForTwoClientsAtOnce) {
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

TEST_P(StepServing, DraftsForFourSlotsInRequestOrder) {
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

TEST_P(StepServing, LeavesPositionsBeyondNOutAndUnwantedFieldsEmpty) {
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

TEST_P(StepServing, InsertsRollsBackAndReportsSlots) {
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

TEST_P(StepServing, ABadEntryRunsNothing) {
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

TEST_P(StepServing, RefusesStrangersByName) {
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

TEST_P(StepServing, NeedsHelloFirstAndOnlyOnce) {
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

TEST_P(StepServing, RefusesAnotherSessionsNumberAndUnknownTypes) {
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

TEST_P(StepServing, AnswersHealthAndPingWithoutASession) {
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

TEST_P(StepServing, HealthOvertakesAStepAndASecondStepIsBusy) {
  Start();
  engine().step_ms = 300;
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  step.Add(slot, 0, 1);
  const auto first = client->NextHeader(Type::kStep);
  ASSERT_TRUE(
      client->Send({.header = first, .head = step.Head(), .rows = step.message().row_area}).ok());
  while (engine().steps_started == 0) std::this_thread::yield();
  const auto health = client->Health();
  EXPECT_EQ(health->code, Code::kOk);
  auto second = first;
  second.seq += 1;
  second.body_hash = 0;
  const auto busy =
      client->Call({.header = second, .head = step.Head(), .rows = step.message().row_area});
  EXPECT_EQ(busy->code(), Code::kBusy);
  const auto done = client->Receive();
  EXPECT_EQ(done->code(), Code::kOk);
  EXPECT_EQ(done->header.seq, first.seq);
}

TEST_P(StepServing, ReplaysTheLastReplyWithoutRunningAgain) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  StepMaker step;
  step.Add(slot, 0, 1);
  const auto header = client->NextHeader(Type::kStep);
  const auto first =
      client->Call({.header = header, .head = step.Head(), .rows = step.message().row_area});
  const auto again =
      client->Call({.header = header, .head = step.Head(), .rows = step.message().row_area});
  ASSERT_EQ(first->code(), Code::kOk);
  EXPECT_FALSE(first->is_cached());
  EXPECT_TRUE(again->is_cached());
  EXPECT_EQ(again->body, first->body);
  EXPECT_EQ(engine().steps_started, 1);
}

TEST_P(StepServing, EndsTheSessionWhenSeqIsWrong) {
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

TEST_P(StepServing, RefusesBodiesThatDoNotMatchTheirHash) {
  Start();
  auto client = running_->NewSession();
  auto header = client->NextHeader(Type::kSlots);
  header.body_hash = 1;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kBodyHash);
}

TEST_P(StepServing, RefusesABodyWithBytesThatDoesNotMatchItsHash) {
  Start();
  auto client = running_->NewSession();
  const std::vector<std::byte> body(contract::kMaxPingBytes, std::byte{1});
  auto header = client->NextHeader(Type::kPing);
  header.body_hash = contract::HashBody(body);
  EXPECT_EQ(client->Call({.header = header, .head = body, .rows = {}})->code(), Code::kOk);
  header.body_hash ^= 1;
  EXPECT_EQ(client->Call({.header = header, .head = body, .rows = {}})->code(), Code::kBodyHash);
}

TEST_P(StepServing, RefusesFramesThatAreTooLarge) {
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

TEST_P(StepServing, AnswersGarbageOnceAndKeepsServingOthers) {
  Start();
  auto other = running_->NewSession();
  auto client = running_->NewClient();
  const auto garbage = testing::Rows(64, 1);
  ASSERT_TRUE(client->connection().Send(garbage, {}, 1000).ok());
  EXPECT_EQ(client->Receive()->code(), Code::kBadFrame);
  EXPECT_FALSE(client->Receive().ok());
  EXPECT_EQ(other->Slots()->code, Code::kOk);
}

TEST_P(StepServing, EndsTheSessionOnReservedBytes) {
  Start();
  auto client = running_->NewSession();
  std::array<std::byte, contract::kOpenBytes> body{};
  body[31] = std::byte{1};
  EXPECT_EQ(
      client->Call({.header = client->NextHeader(Type::kOpen), .head = body, .rows = {}})->code(),
      Code::kBadFrame);
  EXPECT_FALSE(client->Receive().ok());
}

TEST_P(StepServing, RefusesTheDebugFlagItDidNotGrant) {
  Start();
  auto client = running_->NewSession();
  auto header = client->NextHeader(Type::kSlots);
  header.flags |= contract::kFlagDebug;
  EXPECT_EQ(client->Call({.header = header, .head = {}, .rows = {}})->code(), Code::kUnsupported);
}

TEST_P(StepServing, OpensEightSlotsForOneOrManySessionsThenIsFull) {
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

TEST_P(StepServing, ADisconnectFreesTheSlotsAndOldGenerationsStayDead) {
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

TEST_P(StepServing, ClosesSlotsOnceAndSaysSoTheSecondTime) {
  Start();
  auto client = running_->NewSession();
  const ClientSlot slot = OpenSlot(*client);
  const contract::CloseRequest close{.slot = slot.slot, .generation = slot.generation};
  EXPECT_FALSE(client->Close(close)->value->was_closed_before);
  EXPECT_TRUE(client->Close(close)->value->was_closed_before);
  EXPECT_EQ(client->Close({.slot = slot.slot, .generation = 1})->code, Code::kNoSuchSlot);
}

TEST_P(StepServing, ByeEndsTheSession) {
  Start();
  auto client = running_->NewSession();
  OpenSlot(*client);
  EXPECT_EQ(client->Bye()->code(), Code::kOk);
  EXPECT_FALSE(client->Receive().ok());
  auto other = running_->NewSession();
  while (other->Health()->value->open_slots != 0) std::this_thread::yield();
  EXPECT_EQ(other->Health()->value->sessions, 1u);
}

TEST_P(StepServing, RefusesWorkWhoseBudgetIsSpent) {
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

}  // namespace
}  // namespace tp2::server
