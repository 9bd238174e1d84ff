#include "libcore/device/capture_guard.h"

#include <string>

#include "libcore/base/error.h"

namespace tp2::device {
namespace {

thread_local int guard_count = 0;

}  // namespace

CaptureGuard::CaptureGuard() { ++guard_count; }

CaptureGuard::~CaptureGuard() { --guard_count; }

absl::Status CheckNotCapturing(std::string_view call) {
  if (guard_count == 0) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal,
                   {.what = std::string(call),
                    .expected = "no graph capture on this thread",
                    .got = "one in progress, whose replays would not repeat it"});
}

}  // namespace tp2::device
