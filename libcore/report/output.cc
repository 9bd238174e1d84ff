#include "libcore/report/output.h"

#include <cerrno>
#include <cstdio>

#include "libcore/base/error.h"

namespace tp2 {

absl::Status PrintResult(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (is_written && std::fflush(stdout) == 0) return absl::OkStatus();
  if (errno == EPIPE) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {.what = "standard output",
                    .expected = "room for the results",
                    .got = ErrnoText(),
                    .where = "",
                    .next = "free some space or choose another output"});
}

}  // namespace tp2
