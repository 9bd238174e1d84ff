// How a run ended, as a word for the summary and as an exit code in the manner of coreutils'
// timeout.
#pragma once

#include <cstdint>
#include <string>

#include "cmd/run-owned/guard.h"

namespace tp2::owned {

inline constexpr int kExitPermit = 123;
inline constexpr int kExitCap = 124;
inline constexpr int kExitOwnFailure = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

enum class Verdict {
  kChild,  // ended by itself
  kCannotRun,
  kCap,
  kPermitWithdrawn,
  kSignal,  // run-owned was told to end
  kLeftovers,
  kStuck,  // something could not be killed; the guard still holds the locks
  kTelemetryLost,
  kNvlinkErrors,
  kLogFailed,
  kGuardLost,
};

struct RunEnd {
  Verdict verdict = Verdict::kChild;
  int wait_status = 0;    // of the job's first process, when it has ended
  int signal_number = 0;  // that run-owned got, for kSignal
  int exec_errno = 0;     // for kCannotRun
};

const char* VerdictName(Verdict verdict);
int ExitCodeOf(const RunEnd& end);
// "exit 0", "signal 9".
std::string ChildText(int wait_status);

}  // namespace tp2::owned
