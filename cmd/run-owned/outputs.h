// Everything run-owned writes, in threads of its own: a full pipe, a paused terminal or a slow disk
// holds up the job's output, never the decision to end the job.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "libcore/base/unique_fd.h"

namespace tp2::owned {

enum class Sink { kLog, kTelemetry, kStderr };

// Thread-safe. Start threads only after the last fork.
class Outputs {
 public:
  // The job's outputs arrive at `job_out` and `job_err`, go to standard output and standard error,
  // and both into the log. Memory is bounded: one buffer per stream.
  Outputs(UniqueFd job_out, UniqueFd job_err, UniqueFd log, UniqueFd telemetry);
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  // Never waits. Text beyond kMaxQueuedBytes is dropped.
  void Post(Sink sink, std::string text);
  // Why the log or the telemetry file is incomplete; empty when it is not.
  std::string failure() const;
  bool has_telemetry_failed() const;
  // Waits until the job's outputs have ended and were passed on, or the time is over.
  void AwaitJob(int timeout_ms);
  // Waits for that and until everything posted is written, or the time is over.
  void Finish(int timeout_ms);

 private:
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  // Outlives this object while a thread is stuck in a write.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<Sink, std::string>> queue;
    size_t queued_bytes = 0;
    bool is_closed = false;
    int running_relays = 0;
    int running_writers = 0;
    std::string failure;
    bool has_telemetry_failed = false;
    UniqueFd job_out;
    UniqueFd job_err;
    UniqueFd log;
    UniqueFd telemetry;
  };

  static void Relay(const std::shared_ptr<Shared>& shared, int from, int to);
  static void WriteQueue(const std::shared_ptr<Shared>& shared);
  static void WriteFile(Shared& shared, Sink sink, std::string_view text);
  template <class Body>
  void StartThread(int Shared::*running, Body body);
  void StartRelay(int from, int to);

  std::shared_ptr<Shared> shared_;
};

// Opens /dev/null for every standard stream that the caller closed, so that no file of ours gets
// its number.
void EnsureStandardStreams();

// Writes all of it, waiting where needed. Returns 0 or errno.
int WriteAll(int fd, std::string_view text);

}  // namespace tp2::owned
