// The first failure inside a step. Ops return void while they enqueue; the controller looks here at
// the end of a step.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tp2 {

class FirstError {
 public:
  // `op` and `what` must outlive the latch. kInternal: the inputs' or our fault, another STEP may
  // work; kAborted: only a new process heals.
  void Note(const char* op, const char* what, absl::StatusCode code = absl::StatusCode::kInternal) {
    if (op_ != nullptr) return;
    op_ = op;
    what_ = what;
    code_ = code;
  }
  bool is_set() const { return op_ != nullptr; }

  // The latched failure as a status, and an empty latch.
  absl::Status Take() {
    if (op_ == nullptr) return absl::OkStatus();
    absl::Status status(code_, absl::StrCat(op_, ": ", what_));
    op_ = nullptr;
    return status;
  }

 private:
  const char* op_ = nullptr;
  const char* what_ = nullptr;
  absl::StatusCode code_ = absl::StatusCode::kInternal;
};

}  // namespace tp2
