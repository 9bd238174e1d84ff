// What the worker tells the service manager that started it, in systemd's notification protocol:
// one datagram of `KEY=VALUE` lines to the socket that the environment names. The protocol is this
// small on purpose (sd_notify(3) prints an implementation), and without libsystemd the same binary
// starts on machines that do not have it. Without a manager every call does nothing. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/unique_fd.h"
#include "libcore/config/env.h"

namespace tp2::server {

class ServiceManager {
 public:
  ServiceManager(const config::ServiceEnvironment& environment, const Clock* clock);

  // While the object lives, the manager's start limit is pushed back, for at most 10 minutes.
  class StartUp {
   public:
    explicit StartUp(ServiceManager* manager);
    ~StartUp();
    StartUp(const StartUp&) = delete;
    StartUp& operator=(const StartUp&) = delete;

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_over_ = false;  // guarded by mutex_
    std::thread thread_;
  };

  void Ready() { Send("READY=1"); }
  void Stopping() { Send("STOPPING=1"); }
  void Status(const std::string& text) { Send("STATUS=" + text); }
  // From the loop that serves STEPs and from nowhere else: that loop's life is what is watched.
  // Sends at most four times per watchdog period.
  void LoopIsAlive();

  bool is_managed() const { return socket_.is_open(); }

 private:
  void Send(const std::string& state);

  const Clock* clock_;
  std::string path_;  // '@' stands for the zero byte of an abstract address
  int64_t watchdog_ns_ = 0;
  std::atomic<int64_t> last_alive_ns_{0};
  UniqueFd socket_;
};

}  // namespace tp2::server
