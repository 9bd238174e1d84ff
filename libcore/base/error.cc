#include "libcore/base/error.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tp2 {

absl::Status MakeError(absl::StatusCode code, const ErrorText& text) {
  std::string message = text.what;
  if (!text.expected.empty()) absl::StrAppend(&message, ": expected ", text.expected);
  if (!text.got.empty())
    absl::StrAppend(&message, text.expected.empty() ? ": got " : ", got ", text.got);
  if (!text.where.empty()) absl::StrAppend(&message, " (", text.where, ")");
  if (!text.next.empty()) absl::StrAppend(&message, "; ", text.next);
  return absl::Status(code, message);
}

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

std::string ErrnoText() { return std::generic_category().message(errno); }

}  // namespace tp2
