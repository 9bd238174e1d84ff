#include "libcore/collectives/pair_latch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::coll {
namespace {

absl::StatusCode CodeOf(uint32_t error_bits) {
  if ((error_bits & kInvalidId) != 0) return absl::StatusCode::kInternal;
  if ((error_bits & kCancelled) != 0) return absl::StatusCode::kCancelled;
  if ((error_bits & (kLocalTimeout | kPeerTimeout)) != 0) {
    return absl::StatusCode::kDeadlineExceeded;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

std::string ErrorText(uint32_t error_bits) {
  struct Bit {
    uint32_t bit;
    const char* text;
  };
  static constexpr Bit kBits[] = {{kLocalTimeout, "local timeout"},
                                  {kPeerTimeout, "peer timeout"},
                                  {kInvalidId, "invalid token id"},
                                  {kCancelled, "cancelled"},
                                  {kEpochExhausted, "epochs exhausted"}};
  std::string text;
  for (const Bit& bit : kBits) {
    if ((error_bits & bit.bit) != 0) absl::StrAppend(&text, text.empty() ? "" : ", ", bit.text);
  }
  return text;
}

PairLatch::PairLatch(const LatchOptions& options, LatchHooks hooks)
    : options_(options), hooks_(std::move(hooks)) {
  TP2_CHECK(options_.reset_after >= 1 && options_.reset_after <= options_.max_epoch);
}

absl::Status PairLatch::RefusalIfPoisoned() const {
  if (!is_poisoned()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.what = "collective pair",
                    .expected = "a usable pair",
                    .got = absl::StrCat("one poisoned by: ", poison_reason_),
                    .next = "restart the process"});
}

absl::Status PairLatch::NoteDeviceError(const absl::Status& status) {
  if (status.ok() || is_poisoned()) return status;
  poison_reason_ = std::string(status.message());
  is_poisoned_.store(true);
  return status;
}

absl::Status PairLatch::WaitIdle() {
  return NoteDeviceError(hooks_.wait_idle(options_.idle_timeout_ms));
}

absl::Status PairLatch::BeforeLaunch(int64_t operation_count) {
  TP2_RETURN_IF_ERROR(RefusalIfPoisoned());
  if (needs_reset_) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {.what = "collective pair",
                      .expected = "no error since the latest reset",
                      .got = "one",
                      .next = "reset the pair before the next launch"});
  }
  if (operation_count < 0 || operation_count > options_.reset_after) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {.what = "operations of one launch",
                      .expected = absl::StrCat("0 to ", options_.reset_after),
                      .got = absl::StrCat(operation_count),
                      .next = "launch less at once"});
  }
  if (launched_operations_ + operation_count > options_.reset_after) {
    // An error that nobody has seen yet must not be cleared with the rest.
    TP2_RETURN_IF_ERROR(CheckStep());
    TP2_RETURN_IF_ERROR(Reset());
  }
  launched_operations_ += operation_count;
  return absl::OkStatus();
}

absl::Status PairLatch::CheckStep() {
  TP2_RETURN_IF_ERROR(RefusalIfPoisoned());
  TP2_RETURN_IF_ERROR(WaitIdle());
  std::vector<uint32_t> errors;
  TP2_RETURN_IF_ERROR(NoteDeviceError(hooks_.read_errors(errors)));
  uint32_t all = 0;
  std::string got;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    all |= errors[rank];
    if (errors[rank] == 0) continue;
    absl::StrAppend(&got, got.empty() ? "" : "; ", "rank ", rank, ": ", ErrorText(errors[rank]));
  }
  if (all == 0) return absl::OkStatus();
  needs_reset_ = true;
  return MakeError(CodeOf(all), {.what = "collectives of the STEP",
                                 .expected = "none failed",
                                 .got = got,
                                 .next = "its outputs are not to be used; reset the pair"});
}

absl::Status PairLatch::MaintainWhileIdle() {
  TP2_RETURN_IF_ERROR(RefusalIfPoisoned());
  if (needs_reset_ || launched_operations_ <= options_.reset_after / 2) return absl::OkStatus();
  TP2_RETURN_IF_ERROR(CheckStep());
  return Reset();
}

absl::Status PairLatch::Reset() {
  TP2_RETURN_IF_ERROR(RefusalIfPoisoned());
  TP2_RETURN_IF_ERROR(WaitIdle());
  TP2_RETURN_IF_ERROR(NoteDeviceError(hooks_.clear_states()));
  launched_operations_ = 0;
  needs_reset_ = false;
  return absl::OkStatus();
}

}  // namespace tp2::coll
