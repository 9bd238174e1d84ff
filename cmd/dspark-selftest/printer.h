// Text for people; nothing when JSON goes to stdout.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "libcore/report/output.h"

namespace tp2::selftest {

class Printer {
 public:
  explicit Printer(bool is_silent) : is_silent_(is_silent) {}
  absl::Status Print(const std::string& text) const {
    return is_silent_ ? absl::OkStatus() : PrintResult(text);
  }

 private:
  bool is_silent_;
};

}  // namespace tp2::selftest
