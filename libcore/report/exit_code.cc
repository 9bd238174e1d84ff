#include "libcore/report/exit_code.h"

#include <cstdio>
#include <string>

namespace tp2 {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
      return kExitEnvironment;
    case absl::StatusCode::kAborted:
      return kExitDevice;
    default:
      return kExitInternal;
  }
}

int ReportStatus(const char* tool, const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s: error: %s\n", tool, std::string(status.message()).c_str());
  }
  return ExitCodeOf(status);
}

}  // namespace tp2
