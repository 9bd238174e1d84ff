#include "cmd/dspark-selftest/checks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"

namespace tp2::selftest {
namespace {

using contract::Code;

absl::Status Expect(bool holds, const std::string& what, const std::string& expected,
                    const std::string& got) {
  if (holds) return absl::OkStatus();
  return MakeError(absl::StatusCode::kAborted, {.what = what, .expected = expected, .got = got});
}

// The worker must answer this HELLO with `code` and then close.
absl::Status ExpectRefusal(const Connector& connect, const contract::HelloRequest& hello,
                           Code code) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, connect());
  TP2_ASSIGN_OR_RETURN(const auto answer, client->Hello(hello));
  TP2_RETURN_IF_ERROR(ExpectCode("HELLO", code, answer.code));
  return Expect(!client->Health().ok(), "connection", "closed after the refusal", "open");
}

Check RefusalCheck(const char* name, const Connector& connect, const EngineInfo& info, Code code,
                   const std::function<void(contract::HelloRequest&)>& spoil) {
  contract::HelloRequest hello = client::HelloFor(info);
  spoil(hello);
  return {name, [connect, hello, code] { return ExpectRefusal(connect, hello, code); }};
}

// The first entry status that is not NOT_RUN.
Code Culprit(const contract::StepReply& reply) {
  for (int i = 0; i < reply.entry_count; ++i) {
    const Code code = static_cast<Code>(reply.entries[i].status);
    if (code != Code::kNotRun) return code;
  }
  return Code::kNotRun;
}

// Checks that need two slots with a few rows each, and leave none open.
class SessionScript {
 public:
  SessionScript(Twin* twin, int rounds, uint64_t seed) : twin_(twin), rounds_(rounds), rng_(seed) {}

  absl::Status Rounds();
  absl::Status NOutPrefix();
  absl::Status Rollback();
  absl::Status PartialWindow();
  absl::Status BadEntry();
  absl::Status StaleGeneration();
  // A STEP whose only fault `spoil` adds is refused with this entry code, and the slots afterwards
  // draft what they would have drafted before.
  absl::Status RefusedEntry(Code code, const std::function<void(contract::StepMessage*)>& spoil);
  absl::Status SeqReplay();
  absl::Status SlotsFull();

 private:
  uint32_t Anchor() {
    return static_cast<uint32_t>(
        rng_.Below(static_cast<uint64_t>(twin_->engine().info().config.vocab)));
  }
  absl::StatusOr<std::array<TwinSlot, 2>> TwoSlots();
  absl::Status CloseBoth(const std::array<TwinSlot, 2>& slots);
  // Both slots, one row more each: bits equal.
  absl::Status StepBoth(std::array<TwinSlot, 2>* slots);

  Twin* twin_;
  const int rounds_;
  Rng rng_;
};

absl::StatusOr<std::array<TwinSlot, 2>> SessionScript::TwoSlots() {
  std::array<TwinSlot, 2> slots;
  for (int i = 0; i < 2; ++i) {
    TP2_ASSIGN_OR_RETURN(slots[i], twin_->Open(i, 10 * i));
    TP2_RETURN_IF_ERROR(twin_->Insert(&slots[i], slots[i].base, 6));
  }
  return slots;
}

absl::Status SessionScript::CloseBoth(const std::array<TwinSlot, 2>& slots) {
  for (const TwinSlot& slot : slots) TP2_RETURN_IF_ERROR(twin_->Close(slot));
  return absl::OkStatus();
}

absl::Status SessionScript::StepBoth(std::array<TwinSlot, 2>* slots) {
  std::array<StepPart, 2> parts;
  for (int i = 0; i < 2; ++i) {
    parts[i] = {&(*slots)[i], (*slots)[i].length, 1, Anchor()};
  }
  return twin_->Step(parts, kBlockRows).status();
}

absl::Status SessionScript::Rounds() {
  std::array<TwinSlot, kMaxRequests> slots;
  const int window = twin_->engine().info().config.window;
  for (int i = 0; i < kMaxRequests; ++i) {
    TP2_ASSIGN_OR_RETURN(slots[i], twin_->Open(i, 1000 * i));
    // The last starts with a window that has wrapped, the others with a few rows.
    const int row_count = i == 3 ? std::min(window + 20, kMaxRowsPerMessage) : i + 1;
    TP2_RETURN_IF_ERROR(twin_->Insert(&slots[i], slots[i].base, row_count));
  }
  for (int round = 0; round < rounds_; ++round) {
    std::vector<StepPart> parts;
    const int first = static_cast<int>(rng_.Below(kMaxRequests));
    const int count = 1 + static_cast<int>(rng_.Below(kMaxRequests));
    for (int i = 0; i < count; ++i) {
      TwinSlot& slot = slots[(first + i) % kMaxRequests];
      const bool rolls_back = rng_.Below(4) == 0 && slot.length > slot.base + 3;
      const int64_t position = slot.length - (rolls_back ? 1 + rng_.Below(2) : 0);
      parts.push_back({&slot, position, static_cast<int>(rng_.Below(7)), Anchor()});
    }
    const int n_out = 1 + static_cast<int>(rng_.Below(kBlockRows));
    const auto reply = twin_->Step(parts, n_out);
    if (!reply.ok()) return WithContext(reply.status(), absl::StrCat("round ", round));
  }
  for (const TwinSlot& slot : slots) TP2_RETURN_IF_ERROR(twin_->Close(slot));
  return absl::OkStatus();
}

absl::Status SessionScript::NOutPrefix() {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  const StepPart part{&slots[0], slots[0].length, 0, Anchor()};
  TP2_ASSIGN_OR_RETURN(const contract::StepReply whole, twin_->Step({&part, 1}, kBlockRows));
  for (int n_out = 1; n_out < kBlockRows; ++n_out) {
    TP2_ASSIGN_OR_RETURN(const contract::StepReply prefix, twin_->Step({&part, 1}, n_out));
    for (int i = 0; i < n_out; ++i) {
      TP2_RETURN_IF_ERROR(Expect(prefix.entries[0].tokens[i] == whole.entries[0].tokens[i],
                                 absl::StrCat("n_out ", n_out, " draft ", i),
                                 absl::StrCat(whole.entries[0].tokens[i]),
                                 absl::StrCat(prefix.entries[0].tokens[i])));
    }
  }
  return CloseBoth(slots);
}

absl::Status SessionScript::Rollback() {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  const StepPart parts[] = {{&slots[0], slots[0].length - 3, 2, Anchor()},
                            {&slots[1], slots[1].length - 1, 0, Anchor()}};
  TP2_RETURN_IF_ERROR(twin_->Step(parts, kBlockRows).status());
  TP2_RETURN_IF_ERROR(StepBoth(&slots));
  return CloseBoth(slots);
}

absl::Status SessionScript::PartialWindow() {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  // To one row, then refilled: no row from before may be seen.
  const StepPart part{&slots[0], slots[0].base + 1, 0, Anchor()};
  TP2_ASSIGN_OR_RETURN(const contract::StepReply reply, twin_->Step({&part, 1}, kBlockRows));
  TP2_RETURN_IF_ERROR(Expect(reply.entries[0].window_rows == 1, "window rows", "1",
                             absl::StrCat(reply.entries[0].window_rows)));
  TP2_RETURN_IF_ERROR(StepBoth(&slots));
  return CloseBoth(slots);
}

absl::Status SessionScript::RefusedEntry(Code code,
                                         const std::function<void(contract::StepMessage*)>& spoil) {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  const StepPart parts[] = {{&slots[0], slots[0].length, 1, Anchor()},
                            {&slots[1], slots[1].length, 1, Anchor()}};
  BuiltStep step = twin_->Build(parts, kBlockRows);
  spoil(&step.message);
  step.message.row_area =
      std::as_bytes(std::span(step.rows)).first(size_t{step.message.rows} * step.message.row_bytes);
  TP2_ASSIGN_OR_RETURN(const auto answer, twin_->client().Step(step.message));
  TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kBadEntry, answer.code));
  TP2_RETURN_IF_ERROR(ExpectCode("entry", code, Culprit(*answer.value)));
  TP2_RETURN_IF_ERROR(WithContext(StepBoth(&slots), "after the refusal"));
  return CloseBoth(slots);
}

absl::Status SessionScript::BadEntry() {
  return RefusedEntry(Code::kBadRequest,
                      [](contract::StepMessage* step) { step->entries[1].expected_length += 1; });
}

absl::Status SessionScript::StaleGeneration() {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  const TwinSlot old = slots[0];
  TP2_RETURN_IF_ERROR(twin_->Close(old));
  TP2_ASSIGN_OR_RETURN(slots[0], twin_->Open(0, 0));
  TP2_RETURN_IF_ERROR(Expect(slots[0].slot == old.slot, "slot", absl::StrCat(old.slot),
                             absl::StrCat(slots[0].slot)));
  TP2_RETURN_IF_ERROR(twin_->Insert(&slots[0], 0, 3));
  TwinSlot stale = old;
  stale.length = slots[0].length;
  const StepPart part{&stale, stale.length, 1, Anchor()};
  TP2_ASSIGN_OR_RETURN(const auto answer,
                       twin_->client().Step(twin_->Build({&part, 1}, 1).message));
  TP2_RETURN_IF_ERROR(ExpectCode("STEP", Code::kBadEntry, answer.code));
  TP2_RETURN_IF_ERROR(ExpectCode("entry", Code::kStaleGeneration, Culprit(*answer.value)));
  TP2_RETURN_IF_ERROR(StepBoth(&slots));
  return CloseBoth(slots);
}

absl::Status SessionScript::SeqReplay() {
  TP2_ASSIGN_OR_RETURN(auto slots, TwoSlots());
  client::Client& client = twin_->client();
  std::array<std::byte, contract::kCloseBytes> body;
  contract::EncodeCloseRequest({.slot = slots[0].slot, .generation = slots[0].generation}, body);
  const contract::FrameHeader header = client.NextHeader(contract::Type::kClose);
  const client::Outgoing outgoing{.header = header, .head = body, .rows = {}};
  TP2_ASSIGN_OR_RETURN(const client::RawReply first, client.Call(outgoing));
  TP2_ASSIGN_OR_RETURN(const client::RawReply again, client.Call(outgoing));
  TP2_RETURN_IF_ERROR(ExpectCode("CLOSE", Code::kOk, first.code()));
  TP2_RETURN_IF_ERROR(Expect(again.is_cached(), "resend", "CACHED_REPLY", "a new reply"));
  TP2_RETURN_IF_ERROR(Expect(again.body == first.body, "resend", "the same bytes", "others"));
  return twin_->Close(slots[1]);
}

absl::Status SessionScript::SlotsFull() {
  std::vector<TwinSlot> slots;
  for (int i = 0; i < kSlotCount; ++i) {
    TP2_ASSIGN_OR_RETURN(const TwinSlot slot, twin_->Open(i, 0));
    slots.push_back(slot);
  }
  TP2_ASSIGN_OR_RETURN(const auto answer, twin_->client().Open({}));
  TP2_RETURN_IF_ERROR(ExpectCode("OPEN", Code::kSlotsFull, answer.code));
  for (const TwinSlot& slot : slots) TP2_RETURN_IF_ERROR(twin_->Close(slot));
  return absl::OkStatus();
}

}  // namespace

std::vector<Check> RefusalChecks(const Connector& connect, const EngineInfo& info) {
  return {RefusalCheck("identity-refusal", connect, info, Code::kIdentityMismatch,
                       [](contract::HelloRequest& hello) {
                         // All bytes: a single one might be the very one that differs anyway.
                         for (uint8_t& byte : hello.identity) byte ^= 0x5A;
                       }),
          RefusalCheck("version-refusal", connect, info, Code::kVersionUnsupported,
                       [](contract::HelloRequest& hello) {
                         hello.lowest_version = hello.highest_version = contract::kVersion + 0x100;
                       })};
}

std::vector<Check> ConfigChecks(const Connector& connect, const EngineInfo& info) {
  return {RefusalCheck("config-refusal", connect, info, Code::kConfigMismatch,
                       [](contract::HelloRequest& hello) { hello.config[0] ^= 1; })};
}

absl::Status SayHello(client::Client& client, const EngineInfo& info) {
  const contract::HelloRequest hello = client::HelloFor(info);
  TP2_ASSIGN_OR_RETURN(const auto answer, client.Hello(hello));
  if (!answer.value.has_value()) return ExpectCode("HELLO", Code::kOk, answer.code);
  const contract::HelloReply& reply = *answer.value;
  const auto compare = [](const char* what, const Sha256Digest& local, const Sha256Digest& worker) {
    if (local == worker) return absl::OkStatus();
    return MakeError(absl::StatusCode::kAborted, {.what = absl::StrCat(what, ": local ", Hex(local),
                                                                       ", worker ", Hex(worker))});
  };
  TP2_RETURN_IF_ERROR(compare("identity digest", hello.identity, reply.identity));
  TP2_RETURN_IF_ERROR(compare("config digest", hello.config, reply.config));
  TP2_RETURN_IF_ERROR(compare("numerics digest", hello.numerics, reply.numerics));
  if (answer.code == Code::kOk) return absl::OkStatus();
  return Expect(false, contract::HelloFieldName(reply.mismatch_field), "a worker that agrees",
                CodeName(answer.code));
}

std::vector<Check> SessionChecks(Twin* twin, int rounds, uint64_t seed) {
  auto script = std::make_shared<SessionScript>(twin, rounds, seed);
  const auto refused = [script](Code code, std::function<void(contract::StepMessage*)> spoil) {
    return [script, code, spoil = std::move(spoil)] { return script->RefusedEntry(code, spoil); };
  };
  const uint32_t vocab = static_cast<uint32_t>(twin->engine().info().config.vocab);
  return {
      {absl::StrCat("rounds-", rounds, "-bit-identical"), [script] { return script->Rounds(); }},
      {"n-out-prefix", [script] { return script->NOutPrefix(); }},
      {"rollback", [script] { return script->Rollback(); }},
      {"partial-window", [script] { return script->PartialWindow(); }},
      {"bad-entry-atomic", [script] { return script->BadEntry(); }},
      {"stale-generation", [script] { return script->StaleGeneration(); }},
      {"position-gap", refused(Code::kPositionGap,
                               [](contract::StepMessage* step) {
                                 step->entries[0].position += 1;
                                 step->entries[0].anchor_position += 1;
                                 step->entries[0].expected_length += 1;
                               })},
      {"rollback-too-far", refused(Code::kRollbackTooFar,
                                   [](contract::StepMessage* step) {
                                     auto& entry = step->entries[1];  // base 10
                                     entry.position = 9;
                                     entry.anchor_position = entry.expected_length = 10;
                                   })},
      {"empty-window", refused(Code::kEmptyWindow,
                               [](contract::StepMessage* step) {
                                 auto& entry = step->entries[1];
                                 entry.position = entry.anchor_position = 10;
                                 entry.expected_length = 10;
                                 entry.rows = 0;
                                 step->rows -= 1;
                               })},
      {"duplicate-slot", refused(Code::kBadRequest,
                                 [](contract::StepMessage* step) {
                                   step->entries[1] = step->entries[0];
                                   step->entries[1].first_row = 1;
                                 })},
      {"bad-anchor",
       refused(Code::kBadRequest,
               [vocab](contract::StepMessage* step) { step->entries[1].anchor = vocab; })},
      {"seq-replay", [script] { return script->SeqReplay(); }},
      {"slots-full", [script] { return script->SlotsFull(); }},
  };
}

}  // namespace tp2::selftest
