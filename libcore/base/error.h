// Every error that a user can meet has one shape: `what: expected X, got Y (where); next step`.
// The code decides the exit code of a tool (report/exit_code.h):
//   kInvalidArgument     bad flag or bad file content      kOutOfRange        request outside
//   limits kFailedPrecondition  unknown slot, stale generation    kUnavailable       no GPU, no
//   peer access, wrong UUID kResourceExhausted   out of memory kDeadlineExceeded  a bounded wait
//   ended kCancelled           cancelled                         kUnimplemented     feature not
//   built kInternal            broken invariant or device fault  kDataLoss          unreadable or
//   truncated file
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tp2 {

// Empty fields are left out of the text.
struct ErrorText {
  std::string what = {};      // the thing that is wrong: "tensor mtp.0.main_proj.svh"
  std::string expected = {};  // "F16 [256]"
  std::string got = {};       // "BF16 [256]"
  std::string where = {};     // file, byte offset, line
  std::string next = {};      // what the reader should do
};

// Control characters come out as \xNN: one error is one line.
absl::Status MakeError(absl::StatusCode code, const ErrorText& text);

// The same error with `context: ` in front, for callers that know more about where it happened.
absl::Status WithContext(const absl::Status& status, const std::string& context);

// What errno says, as text; safe when other threads do the same, which strerror does not promise.
std::string ErrnoText();

}  // namespace tp2
