// The guard: the process that starts the job, adopts its orphans, ends it, enforces the cap, and
// keeps the locks until nothing of the job is left, also when run-owned itself is killed or
// stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"

namespace tp2::owned {

// Why a job ends.
enum class Cause : int32_t {
  kChild,        // by itself
  kCap,          // its time is over
  kPermit,       // the cards are no longer ours
  kSignal,       // run-owned was told to stop
  kTelemetry,    // required telemetry is gone
  kMonitorLost,  // run-owned is gone
  kGuardLost,    // the guard is gone or does not answer
};

// Both directions speak these; one packet each.
struct GuardMessage {
  enum Kind : int32_t {
    // To the guard.
    kStart,    // go
    kStop,     // a: Cause
    kHurry,    // no grace
    kPing,     // answer with kAck
    kGoodbye,  // everything is written; end once nothing is left
    // From the guard.
    kStarted,    // a: pid of the job's first process; text: control group or empty
    kCannotRun,  // a: errno
    kAck,        // to kPing: the guard is at work
    kNote,       // text: a step, for the log
    kLeftover,   // a: pid; text: name
    kStuck,      // the ladder has done what it can
    kEmpty,      // nothing is left; a: Cause, b: wait status, c: 1 when leftovers were found
  };
  int32_t kind = 0;
  int32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
  char text[496] = {};
};

struct GuardOptions {
  std::vector<std::string> command;
  std::string visible_devices;
  int64_t cap_ms = 0;
  int64_t grace_ms = 0;
  int64_t kill_margin_ms = 0;  // KILL this long before the cap
  int64_t give_up_ms = 0;
  bool wants_cgroup = true;
  int out_fd = -1;
  int err_fd = -1;
  int log_fd = -1;  // for what happens after run-owned is gone
};

struct Guard {
  pid_t pid = -1;
  UniqueFd socket = {};
};

// Forks: only while the process has one thread. The guard keeps all open descriptors, among them
// the locks. Errors: kUnavailable.
absl::StatusOr<Guard> StartGuard(const GuardOptions& options);

// False when the other side is gone.
bool SendMessage(int fd, GuardMessage::Kind kind, int32_t a = 0, int32_t b = 0, int32_t c = 0,
                 const std::string& text = "");
// No value: nothing there yet, or `is_gone`.
std::optional<GuardMessage> ReceiveMessage(int fd, bool& is_gone);

}  // namespace tp2::owned
