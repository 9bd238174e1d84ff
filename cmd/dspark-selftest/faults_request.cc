// Faults of requests: well-framed and impossible. Each is refused by name, and the next good STEP
// of the same slots has the bits it would have had anyway.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cmd/dspark-selftest/fault_bench.h"
#include "libcore/base/status_macros.h"
#include "libcore/client/synthetic_rows.h"

namespace tp2::selftest {
namespace {

using contract::Code;
using contract::Type;

// F14: one seq too high, one too low, the same again with other bytes.
absl::StatusOr<double> WrongSeq(FaultBench* bench) {
  const struct {
    int64_t shift;
    Type type;
    Code code;
  } cases[] = {{+1, Type::kSlots, Code::kSeqGap},
               {-2, Type::kSlots, Code::kSeqOld},
               {-1, Type::kBye, Code::kSeqConflict}};
  for (const auto& wrong : cases) {
    TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
    contract::FrameHeader header = tenant.client->NextHeader(wrong.type);
    header.seq = static_cast<uint64_t>(static_cast<int64_t>(header.seq) + wrong.shift);
    TP2_ASSIGN_OR_RETURN(const client::RawReply reply,
                         tenant.client->Call({.header = header, .head = {}, .rows = {}}));
    TP2_RETURN_IF_ERROR(ExpectCode("seq", wrong.code, reply.code()));
    TP2_RETURN_IF_ERROR(bench->MsUntilClosed(tenant.client.get(), 1000).status());
  }
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return std::size(cases);
}

// F13: the same STEP again, bytes and seq: the stored reply, and nothing runs.
absl::StatusOr<double> Duplicate(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
  client::Client& client = *tenant.client;
  const StepPart part{&tenant.slot, tenant.slot.length, 1, 1};
  const BuiltStep step = bench->twin().Build({&part, 1}, kBlockRows);
  std::array<std::byte, contract::StepHeadBytes(1)> head;
  EncodeStepHead(step.message, head);
  const contract::FrameHeader header = client.NextHeader(Type::kStep);
  const client::Outgoing outgoing{.header = header, .head = head, .rows = step.message.row_area};
  TP2_ASSIGN_OR_RETURN(const contract::HealthReply before, bench->Health());
  TP2_ASSIGN_OR_RETURN(const client::RawReply first, client.Call(outgoing));
  TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kOk, first.code()));
  for (int i = 0; i < 10; ++i) {
    TP2_ASSIGN_OR_RETURN(const client::RawReply again, client.Call(outgoing));
    TP2_RETURN_IF_ERROR(Demand(again.is_cached() && again.body == first.body, "the resend",
                               "the stored reply", "another"));
  }
  TP2_ASSIGN_OR_RETURN(const contract::HealthReply after, bench->Health());
  const uint64_t executed = after.steps - before.steps;
  TP2_RETURN_IF_ERROR(Demand(executed == 1, "executions", "1", absl::StrCat(executed)));
  tenant.client.reset();
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return static_cast<double>(executed);
}

absl::StatusOr<Code> CloseAs(client::Client* client, uint16_t slot, uint64_t generation) {
  TP2_ASSIGN_OR_RETURN(const auto answer, client->Close({.slot = slot, .generation = generation}));
  return answer.value.has_value() && answer.value->was_closed_before ? Code::kNotRun : answer.code;
}

// F15, F16: generations of other sessions, earlier connections and by guess.
absl::StatusOr<double> ForeignGenerations(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant old, bench->NewTenant());
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> thief, bench->Session());
  TP2_ASSIGN_OR_RETURN(Code code, CloseAs(thief.get(), old.slot.slot, old.slot.generation));
  TP2_RETURN_IF_ERROR(ExpectCode("another session's slot", Code::kNoSuchSlot, code));
  const TwinSlot remembered = old.slot;
  old.client.reset();
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant now, bench->NewTenant());
  const auto step_as = [&](uint64_t generation) -> absl::StatusOr<Code> {
    TwinSlot slot = now.slot;
    slot.generation = generation;
    const StepPart part{&slot, slot.length, 1, 1};
    const BuiltStep step = bench->twin().Build({&part, 1}, 1);
    TP2_ASSIGN_OR_RETURN(const auto answer, now.client->Step(step.message));
    return static_cast<Code>(answer.value->entries[0].status);
  };
  int accepted = 0;
  // Near the true one, where a counter's neighbours are, and from the earlier life of the slot.
  for (int64_t shift = -500; shift <= 500; ++shift) {
    if (shift == 0) continue;
    TP2_ASSIGN_OR_RETURN(code, step_as(now.slot.generation + static_cast<uint64_t>(shift)));
    if (code != Code::kStaleGeneration) ++accepted;
  }
  TP2_ASSIGN_OR_RETURN(code, step_as(remembered.generation));
  if (code != Code::kStaleGeneration) ++accepted;
  TP2_RETURN_IF_ERROR(Demand(accepted == 0, "stale generations", "none", absl::StrCat(accepted)));
  now.client.reset();
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return accepted;
}

// F17: every entry fault at every position of a STEP of four.
absl::StatusOr<double> EveryBadEntry(FaultBench* bench) {
  Twin& twin = bench->twin();
  const uint32_t vocab = static_cast<uint32_t>(bench->info().config.vocab);
  using Spoil = void (*)(contract::StepMessageEntry*, uint32_t vocab);
  constexpr Spoil kSpoils[] = {
      [](contract::StepMessageEntry* entry, uint32_t) { entry->slot = 99; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->generation += 1; },
      [](contract::StepMessageEntry* entry, uint32_t v) { entry->anchor = v; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->anchor = 0xFFFFFFFFu; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->position += 1; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->anchor_position += 1; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->expected_length += 1; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->first_row += 1; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->rows += 1; },
      [](contract::StepMessageEntry* entry, uint32_t) { entry->accepted_plus_one = 7; },
  };
  std::array<TwinSlot, kMaxRequests> slots;
  std::vector<StepPart> parts;
  for (int i = 0; i < kMaxRequests; ++i) {
    TP2_ASSIGN_OR_RETURN(slots[i], twin.Open(1 + i, 10 * i));
    TP2_RETURN_IF_ERROR(twin.Insert(&slots[i], slots[i].base, 3));
  }
  int refused = 0;
  for (const Spoil spoil : kSpoils) {
    for (int at = 0; at < kMaxRequests; ++at) {
      parts.clear();
      for (TwinSlot& slot : slots) parts.push_back({&slot, slot.length, 1, 1});
      BuiltStep step = twin.Build(parts, kBlockRows);
      spoil(&step.message.entries[at], vocab);
      TP2_ASSIGN_OR_RETURN(const auto answer, twin.client().Step(step.message));
      TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kBadEntry, answer.code));
      ++refused;
      // The twin in our process saw nothing: equal bits say that the worker's slots did not either.
      TP2_RETURN_IF_ERROR(twin.Step(parts, kBlockRows).status());
    }
  }
  for (const TwinSlot& slot : slots) TP2_RETURN_IF_ERROR(twin.Close(slot));
  return refused;
}

// F18: fields of the STEP itself.
absl::StatusOr<double> StepFields(FaultBench* bench) {
  Twin& twin = bench->twin();
  TP2_ASSIGN_OR_RETURN(TwinSlot slot, twin.Open(1, 0));
  TP2_RETURN_IF_ERROR(twin.Insert(&slot, 0, 3));
  using Spoil = void (*)(contract::StepMessage*);
  constexpr Spoil kSpoils[] = {
      [](contract::StepMessage* step) { step->n_out = 0; },
      [](contract::StepMessage* step) { step->n_out = kBlockRows + 1; },
      [](contract::StepMessage* step) { step->row_kind = 3; },
      [](contract::StepMessage* step) { step->rows_offset += 64; },
      [](contract::StepMessage* step) { step->row_kind = 2; },
  };
  for (const Spoil spoil : kSpoils) {
    const StepPart part{&slot, slot.length, 1, 1};
    BuiltStep step = twin.Build({&part, 1}, kBlockRows);
    spoil(&step.message);
    TP2_ASSIGN_OR_RETURN(const auto answer, twin.client().Step(step.message));
    TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kBadRequest, answer.code));
    TP2_RETURN_IF_ERROR(twin.Step({&part, 1}, kBlockRows).status());
  }
  TP2_RETURN_IF_ERROR(twin.Close(slot));
  return std::size(kSpoils);
}

// F19: rollback by every number of rows the ring holds, then one more; windows of every size.
absl::StatusOr<double> EveryRollback(FaultBench* bench) {
  Twin& twin = bench->twin();
  const int ring_rows = bench->info().config.ring_rows();
  TP2_ASSIGN_OR_RETURN(TwinSlot slot, twin.Open(1, 0));
  int steps = 0;
  for (int back = 0; back <= ring_rows; ++back) {
    // What a rollback drops does not come back: fill the whole ring again.
    for (int left = ring_rows; left > 0; left -= 64) {
      TP2_RETURN_IF_ERROR(twin.Insert(&slot, slot.length, std::min(left, 64)));
    }
    const StepPart part{&slot, slot.length - back, back == ring_rows ? 1 : 0, 3};
    TP2_RETURN_IF_ERROR(twin.Step({&part, 1}, kBlockRows).status());
    ++steps;
    if (back < ring_rows) continue;
    const StepPart beyond{&slot, slot.length - ring_rows - 1, 1, 3};
    TP2_ASSIGN_OR_RETURN(const auto answer,
                         twin.client().Step(twin.Build({&beyond, 1}, 1).message));
    TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kBadEntry, answer.code));
    TP2_RETURN_IF_ERROR(ExpectCode("entry", Code::kRollbackTooFar,
                                   static_cast<Code>(answer.value->entries[0].status)));
  }
  TP2_RETURN_IF_ERROR(twin.Close(slot));
  return steps;
}

// F20: rows that are no numbers are refused, denormal ones are numbers.
absl::StatusOr<double> StrangeNumbers(FaultBench* bench) {
  Twin& twin = bench->twin();
  TP2_ASSIGN_OR_RETURN(TwinSlot slot, twin.Open(1, 0));
  TP2_RETURN_IF_ERROR(twin.Insert(&slot, 0, 3));
  for (const uint16_t bits : {0x7F80, 0xFF80, 0x7FC0, 0x7F81}) {
    const StepPart part{&slot, slot.length, 1, 1};
    BuiltStep step = twin.Build({&part, 1}, 1);
    step.rows[step.rows.size() / 2] = std::bit_cast<Bf16>(bits);
    step.message.row_area = std::as_bytes(std::span(step.rows));
    TP2_ASSIGN_OR_RETURN(const auto answer, twin.client().Step(step.message));
    TP2_RETURN_IF_ERROR(ExpectCode("entry", Code::kNonfiniteRows,
                                   static_cast<Code>(answer.value->entries[0].status)));
    TP2_RETURN_IF_ERROR(twin.Step({&part, 1}, kBlockRows).status());
  }
  TP2_RETURN_IF_ERROR(twin.Close(slot));
  return 4;
}

// F21: HELLO with one field changed: the refusal names it, and the connection is over.
absl::StatusOr<double> ForeignHellos(FaultBench* bench) {
  using Spoil = void (*)(contract::HelloRequest*);
  const struct {
    uint32_t field;
    Code code;
    Spoil spoil;
  } cases[] = {
      {contract::kFieldIdentity, Code::kIdentityMismatch,
       [](contract::HelloRequest* hello) { hello->identity[31] ^= 1; }},
      {contract::kFieldConfig, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->config[31] ^= 1; }},
      {contract::kFieldVocab, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->vocab += 1; }},
      {contract::kFieldHidden, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->hidden += 1; }},
      {contract::kFieldTaps, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->taps += 1; }},
      {contract::kFieldRowBytes, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->row_bytes += 2; }},
      {contract::kFieldWindow, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->window_rows += 1; }},
      {contract::kFieldMaxModelLength, Code::kConfigMismatch,
       [](contract::HelloRequest* hello) { hello->max_model_length = 0xFFFFFFFFu; }},
      {contract::kFieldNone, Code::kVersionUnsupported,
       [](contract::HelloRequest* hello) {
         hello->lowest_version = hello->highest_version = contract::kVersion + 0x100;
       }},
  };
  for (const auto& wrong : cases) {
    contract::HelloRequest hello = client::HelloFor(bench->info());
    wrong.spoil(&hello);
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client, bench->Stranger());
    TP2_ASSIGN_OR_RETURN(const auto answer, client->Hello(hello));
    TP2_RETURN_IF_ERROR(ExpectCode(contract::HelloFieldName(wrong.field), wrong.code, answer.code));
    const uint32_t named = answer.value.has_value() ? answer.value->mismatch_field : 0;
    TP2_RETURN_IF_ERROR(Demand(named == wrong.field, "field named",
                               contract::HelloFieldName(wrong.field),
                               contract::HelloFieldName(named)));
    TP2_RETURN_IF_ERROR(bench->MsUntilClosed(client.get(), 1000).status());
  }
  return std::size(cases);
}

// F27: a budget that is spent before the engine is called costs no strike.
absl::StatusOr<double> SpentBudgets(FaultBench* bench) {
  TP2_ASSIGN_OR_RETURN(FaultBench::Tenant tenant, bench->NewTenant());
  tenant.client->options().budget_us = 1;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const StepPart part{&tenant.slot, tenant.slot.length, 1, 1};
    const BuiltStep step = bench->twin().Build({&part, 1}, 1);
    TP2_ASSIGN_OR_RETURN(const auto answer, tenant.client->Step(step.message));
    if (answer.code == Code::kDeadline) {
      ++refused;
      continue;
    }
    TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kOk, answer.code));
    ++tenant.slot.length;
  }
  TP2_ASSIGN_OR_RETURN(const contract::HealthReply health, bench->Health());
  TP2_RETURN_IF_ERROR(Demand(health.failures_in_a_row == 0, "strikes", "none",
                             absl::StrCat(health.failures_in_a_row)));
  tenant.client.reset();
  TP2_RETURN_IF_ERROR(bench->WaitForOpenSlots(1).status());
  return refused;
}

}  // namespace

std::vector<Fault> RequestFaults(FaultBench* bench) {
  return {
      {"F13 duplicate", "executions of one STEP sent 11 times", [=] { return Duplicate(bench); }},
      {"F14 wrong-seq", "refused", [=] { return WrongSeq(bench); }},
      {"F15 F16 foreign-generations", "accepted of 1002",
       [=] { return ForeignGenerations(bench); }},
      {"F17 every-bad-entry", "refused, bits equal after each",
       [=] { return EveryBadEntry(bench); }},
      {"F18 step-fields", "refused, bits equal after each", [=] { return StepFields(bench); }},
      {"F19 every-rollback", "STEPs, bits equal", [=] { return EveryRollback(bench); }},
      {"F20 strange-numbers", "refused, bits equal after each",
       [=] { return StrangeNumbers(bench); }},
      {"F21 foreign-hellos", "refused by field", [=] { return ForeignHellos(bench); }},
      {"F27 spent-budgets", "refused of 200", [=] { return SpentBudgets(bench); }},
  };
}

}  // namespace tp2::selftest
