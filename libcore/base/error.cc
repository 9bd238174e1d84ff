#include "libcore/base/error.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tp2 {
namespace {

// What files, peers and the environment say is quoted in errors, so every error passes here: a line
// break would make two lines of one error, an escape sequence would reach the reader's terminal.
std::string OnOneLine(const std::string& message) {
  std::string result;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&result, "\\x%02x", byte);
    } else {
      result.push_back(c);
    }
  }
  return result;
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, const ErrorText& text) {
  std::string message = text.what;
  if (!text.expected.empty()) absl::StrAppend(&message, ": expected ", text.expected);
  if (!text.got.empty())
    absl::StrAppend(&message, text.expected.empty() ? ": got " : ", got ", text.got);
  if (!text.where.empty()) absl::StrAppend(&message, " (", text.where, ")");
  if (!text.next.empty()) absl::StrAppend(&message, "; ", text.next);
  return absl::Status(code, OnOneLine(message));
}

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

std::string ErrnoText() { return std::generic_category().message(errno); }

}  // namespace tp2
