#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "libcore/capture/capture_shard.h"
#include "tests/fuzz/fuzz_check.h"

namespace {

tp2::CaptureInfo SmallInfo() {
  tp2::CaptureInfo info;
  info.dim = 8;
  info.tap_values = 16;
  info.vocab = 32;
  info.stages = 1;
  info.experts = 4;
  info.experts_per_token = 2;
  info.window = 8;
  info.has_main_x = info.has_confidence = info.has_routing = true;
  return info;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  // Maps are aligned to pages; the fuzzer's bytes need not be.
  std::vector<uint64_t> aligned(byte_count / 8 + 1);
  std::memcpy(aligned.data(), data, byte_count);
  const auto bytes = std::as_bytes(std::span(aligned)).first(byte_count);
  const tp2::CaptureInfo info = SmallInfo();
  const auto shard = tp2::ParseCaptureShard(bytes, info, "fuzz.safetensors");
  tp2::CheckRefusal(shard.status());
  if (!shard.ok()) return 0;
  // Every round of an accepted shard can be read, to its last value.
  unsigned sum = 0;
  for (int64_t round = 0; round < shard->round_count(); ++round) {
    for (const tp2::CaptureBlock& block : tp2::RoundOf(*shard, info, round).blocks) {
      TP2_CHECK(block.slot >= 0 && block.slot < tp2::kSlotCount);
      for (const tp2::Bf16 value : block.main_x) sum += value.bits;
      for (const int32_t expert : block.experts) sum += static_cast<unsigned>(expert);
    }
  }
  return sum == 0xFFFFFFFFu ? 1 : 0;
}
