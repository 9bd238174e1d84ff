#include "cmd/run-owned/verdict.h"

#include <sys/wait.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tp2::owned {
namespace {

constexpr int kSignalBase = 128;

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kChild:
      return "child";
    case Verdict::kCannotRun:
      return "cannot_run";
    case Verdict::kCap:
      return "cap";
    case Verdict::kPermitWithdrawn:
      return "permit_withdrawn";
    case Verdict::kSignal:
      return "signal";
    case Verdict::kLeftovers:
      return "leftovers";
    case Verdict::kStuck:
      return "stuck";
    case Verdict::kTelemetryLost:
      return "telemetry_lost";
    case Verdict::kNvlinkErrors:
      return "nvlink_errors";
    case Verdict::kLogFailed:
      return "log_failed";
    case Verdict::kGuardLost:
      return "guard_lost";
  }
  return "?";
}

int ExitCodeOf(const RunEnd& end) {
  switch (end.verdict) {
    case Verdict::kChild:
      return WIFSIGNALED(end.wait_status) ? kSignalBase + WTERMSIG(end.wait_status)
                                          : WEXITSTATUS(end.wait_status);
    case Verdict::kCannotRun:
      return end.exec_errno == ENOENT ? kExitNotFound : kExitNotExecutable;
    case Verdict::kCap:
      return kExitCap;
    case Verdict::kPermitWithdrawn:
      return kExitPermit;
    case Verdict::kSignal:
      return kSignalBase + end.signal_number;
    default:
      return kExitOwnFailure;
  }
}

std::string ChildText(int wait_status) {
  return WIFSIGNALED(wait_status) ? absl::StrCat("signal ", WTERMSIG(wait_status))
                                  : absl::StrCat("exit ", WEXITSTATUS(wait_status));
}

}  // namespace tp2::owned
