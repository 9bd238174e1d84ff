#include "libcore/checkpoint/value_checks.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace tp2 {
namespace {

constexpr int64_t kChunkElements = 1 << 20;
constexpr int64_t kNone = -1;
constexpr int kLargestScaleExponent = 100;

// Index of the first element in [begin, end) whose bits fail; kNone when none does. The inner loop
// has no exit, so that it vectorises.
template <class Word, class IsBad>
int64_t FirstBad(const TensorView& view, int64_t begin, int64_t end, IsBad is_bad) {
  constexpr int64_t kRun = 4096;
  const Word* words = view.As<Word>();
  for (int64_t start = begin; start < end; start += kRun) {
    const int64_t stop = std::min(end, start + kRun);
    unsigned bad_count = 0;
    for (int64_t i = start; i < stop; ++i) bad_count += is_bad(words[i]) ? 1u : 0u;
    if (bad_count == 0) continue;
    for (int64_t i = start; i < stop; ++i) {
      if (is_bad(words[i])) return i;
    }
  }
  return kNone;
}

bool IsScale(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23) - 127;  // a set sign bit leaves the range
  return (bits & 0x7FFFFFu) == 0 && exponent >= -kLargestScaleExponent &&
         exponent <= kLargestScaleExponent;
}

int64_t FirstNonFinite(const TensorView& view, int64_t begin, int64_t end) {
  switch (view.dtype) {
    case DType::kBf16:
      return FirstBad<uint16_t>(view, begin, end,
                                [](uint16_t bits) { return (bits & 0x7F80u) == 0x7F80u; });
    case DType::kF16:
      return FirstBad<uint16_t>(view, begin, end,
                                [](uint16_t bits) { return (bits & 0x7C00u) == 0x7C00u; });
    case DType::kF32:
      return FirstBad<uint32_t>(view, begin, end,
                                [](uint32_t bits) { return (bits & 0x7F800000u) == 0x7F800000u; });
    case DType::kFp8E4m3:
      return FirstBad<uint8_t>(view, begin, end,
                               [](uint8_t bits) { return (bits & 0x7Fu) == 0x7Fu; });
    default:
      TP2_CHECK(false);
      return kNone;
  }
}

std::string BitsText(const TensorView& view, int64_t index) {
  const int element_bytes = DTypeBytes(view.dtype);
  uint64_t bits = 0;
  for (int i = 0; i < element_bytes; ++i) {
    bits |= static_cast<uint64_t>(view.bytes[index * element_bytes + i]) << (8 * i);
  }
  return absl::StrFormat("bits 0x%0*x at element %d", 2 * element_bytes, bits, index);
}

absl::Status BadValue(const TensorView& view, const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat("tensor ", view.name),
                    .expected = expected,
                    .got = got,
                    .where = view.file,
                    .next = "copy or convert the checkpoint again"});
}

absl::Status CheckChunk(const ValueCheck& check, int64_t begin, int64_t end) {
  const TensorView& view = *check.tensor;
  if (check.rule == ValueRule::kPowersOfTwo) {
    const int64_t bad =
        FirstBad<uint32_t>(view, begin, end, [](uint32_t bits) { return !IsScale(bits); });
    if (bad == kNone) return absl::OkStatus();
    return BadValue(view, "powers of two from 2^-100 to 2^100", BitsText(view, bad));
  }
  const int64_t bad = FirstNonFinite(view, begin, end);
  if (bad == kNone) return absl::OkStatus();
  return BadValue(view, "finite values", BitsText(view, bad));
}

absl::Status CheckNotAllZero(const ValueCheck& check) {
  if (check.rule != ValueRule::kChannelScales) return absl::OkStatus();
  const uint16_t* bits = check.tensor->As<uint16_t>();
  const bool has_value = std::any_of(bits, bits + check.tensor->element_count(),
                                     [](uint16_t value) { return (value & 0x7FFFu) != 0; });
  if (has_value) return absl::OkStatus();
  return BadValue(*check.tensor, "at least one value that is not zero", "zeros only");
}

struct Job {
  const ValueCheck* check;
  int64_t begin;
  int64_t end;
};

}  // namespace

absl::Status RunValueChecks(const std::vector<ValueCheck>& checks, ThreadPool& pool) {
  std::vector<Job> jobs;
  for (const ValueCheck& check : checks) {
    const int64_t count = check.tensor->element_count();
    for (int64_t begin = 0; begin < count; begin += kChunkElements) {
      jobs.push_back({&check, begin, std::min(count, begin + kChunkElements)});
    }
  }
  std::vector<absl::Status> results(jobs.size());
  pool.ParallelFor(static_cast<int64_t>(jobs.size()), [&](int64_t index) {
    const Job& job = jobs[index];
    results[index] = CheckChunk(*job.check, job.begin, job.end);
    if (results[index].ok() && job.begin == 0) results[index] = CheckNotAllZero(*job.check);
  });
  for (absl::Status& result : results) {
    if (!result.ok()) return std::move(result);
  }
  return absl::OkStatus();
}

}  // namespace tp2
