// A frame from anyone: decoders and validators must take any bytes, and what they accept must be
// what the encoders write.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/contract/codec.h"
#include "libcore/contract/crc32c.h"
#include "libcore/contract/frame.h"
#include "libcore/contract/validate.h"

namespace tp2::contract {
namespace {

// One encoding per value: an accepted body, encoded again, is the same bytes.
template <class T>
void CheckCanonical(ByteView body, Code (*decode)(ByteView, T*), void (*encode)(const T&, Bytes),
                    size_t head_bytes) {
  T value;
  if (decode(body, &value) != Code::kOk) return;
  std::vector<std::byte> again(head_bytes == 0 ? body.size() : head_bytes);
  TP2_CHECK(again.size() <= body.size());
  encode(value, again);
  TP2_CHECK(std::equal(again.begin(), again.end(), body.begin()));
}

void CheckBody(ByteView body) {
  CheckCanonical(body, DecodeHelloRequest, EncodeHelloRequest, 0);
  CheckCanonical(body, DecodeHelloReply, EncodeHelloReply, 0);
  CheckCanonical(body, DecodeOpenRequest, EncodeOpenRequest, 0);
  CheckCanonical(body, DecodeOpenReply, EncodeOpenReply, 0);
  CheckCanonical(body, DecodeCloseRequest, EncodeCloseRequest, 0);
  CheckCanonical(body, DecodeCloseReply, EncodeCloseReply, 0);
  CheckCanonical(body, DecodeInsert, EncodeInsertHead, kInsertHeadBytes);
  CheckCanonical(body, DecodeInsertReply, EncodeInsertReply, 0);
  CheckCanonical(body, DecodeStepReply, EncodeStepReply, 0);
  CheckCanonical(body, DecodeHealthReply, EncodeHealthReply, 0);
  CheckCanonical(body, DecodeSlotsReply, EncodeSlotsReply, 0);
}

// Sizes and slots for which plausible inputs pass some checks.
void CheckValidators(ByteView body) {
  WorkerLimits worker;
  worker.vocab = 100;
  worker.hidden = 4;
  worker.taps = 3;
  worker.window_rows = 8;
  worker.ring_rows = 24;
  worker.max_positions = 1000;
  const SessionGrant grant{
      .session = 1, .features = kFeatureMainX, .requests = 4, .n_out = 5, .slots = 8};
  SlotTable slots(kSlotCount, 0);
  for (int slot = 0; slot < 4; ++slot) slots.Open(slot, grant.session, 0, 10);
  RequestBody request;
  SlotWindow after;
  if (DecodeStep(body, &request.step) == Code::kOk) {
    const StepVerdict verdict = ValidateStep(request.step, worker, grant, slots);
    TP2_CHECK((verdict.code == Code::kBadEntry) == (verdict.bad_entry >= 0));
    TP2_CHECK(verdict.bad_entry < request.step.entry_count);
  }
  if (DecodeInsert(body, &request.insert) == Code::kOk) {
    (void)ValidateInsert(request.insert, worker, grant, slots, &after);
  }
  if (DecodeHelloRequest(body, &request.hello) == Code::kOk) {
    TP2_CHECK(ValidateHello(request.hello, worker).code != Code::kOk ||
              request.hello.vocab == worker.vocab);
  }
}

void CheckFrame(ByteView input) {
  FrameHeader header;
  (void)DecodeHeader(input, Direction::kRequest, &header);
  if (input.size() < kHeaderBytes) return;
  // A fuzzer does not find checksums: make magic and CRC right, then look again.
  std::vector<std::byte> frame(input.begin(), input.end());
  std::memcpy(frame.data(), "DSPK", 4);
  std::memset(frame.data() + 12, 0, 4);
  const uint32_t crc = Crc32c(std::span(frame).first(kHeaderBytes));
  std::memcpy(frame.data() + 12, &crc, sizeof(crc));
  for (const Direction direction : {Direction::kRequest, Direction::kReply}) {
    if (DecodeHeader(frame, direction, &header) != Code::kOk) continue;
    std::array<std::byte, kHeaderBytes> again;
    EncodeHeader(header, again);
    TP2_CHECK(std::equal(again.begin(), again.end(), frame.begin()));
  }
  // Row views want the alignment that transports give them.
  const std::vector<std::byte> body(frame.begin() + kHeaderBytes, frame.end());
  CheckBody(body);
  CheckValidators(body);
}

}  // namespace
}  // namespace tp2::contract

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  tp2::contract::CheckFrame(std::as_bytes(std::span(data, byte_count)));
  return 0;
}
