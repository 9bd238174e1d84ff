// SIGTERM and SIGINT drain the worker; one that comes before there is anything to drain ends the
// process at once, for loading weights can take a minute.
#pragma once

#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "libcore/report/exit_code.h"
#include "libcore/server/step_server.h"

namespace tp2::serve {

// Construct before any other thread exists, so that all inherit the mask; destroy before the
// server.
class SignalWatcher {
 public:
  SignalWatcher() {
    ::sigemptyset(&signals_);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) ::sigaddset(&signals_, number);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Run(); });
  }
  ~SignalWatcher() {
    // Only to the watcher itself: ends its wait.
    ::pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // From now on signals drain this server; null: they end the process again.
  void SetServer(server::StepServer* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }

 private:
  void Run() {
    int number = 0;
    while (::sigwait(&signals_, &number) == 0 && number != SIGUSR1) {
      const std::lock_guard lock(mutex_);
      spdlog::info("signal {}: {}", number, server_ == nullptr ? "end" : "drain");
      // Without destructors: another thread may be anywhere in them or in the loader.
      if (server_ == nullptr) std::_Exit(kExitOk);
      server_->BeginDrain();
    }
  }

  sigset_t signals_;
  std::mutex mutex_;
  server::StepServer* server_ = nullptr;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tp2::serve
