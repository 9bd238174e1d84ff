// The worker process between its sockets and its engine: one acceptor thread per listener, one
// thread per connection, and the controller, the thread that calls Run and alone calls the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "libcore/server/connection_worker.h"
#include "libcore/server/step_service.h"
#include "libcore/transport/networks.h"
#include "libcore/transport/transport.h"

namespace tp2::server {

struct ServerOptions {
  ServiceOptions service = {};
  int max_connections = 64;
  int64_t drain_ms = 2'000;  // how long a drain waits for open slots
  int64_t send_timeout_ms = 3'000;
  int64_t frame_timeout_ms = 2'000;  // from a frame's first byte to its last
  int64_t hello_ms = 5'000;          // from the connect to a session
  // Connections that a listener brings must come from here; empty: from anywhere.
  transport::NetworkList allowed_clients = {};
};

enum class ServeEnd {
  kDrained,
  kTooManyFailures,  // failures in a row reached the limit
  kEngineLost,       // the engine cannot be used again in this process
};

class StepServer {
 public:
  // `engine` and `clock` outlive the server.
  StepServer(StepEngine* engine, const ServerOptions& options, const Clock* clock);
  // Run must have returned, or never been called.
  ~StepServer();

  // What a server's connections accept.
  static transport::FrameRule RequestRule(const ServerOptions& options);

  // Any thread, before or while Run runs.
  void Listen(std::unique_ptr<transport::Listener> listener);
  void Adopt(std::unique_ptr<transport::Connection> connection);

  // Serves until a drain is complete or the engine failed; no thread is left when it returns.
  ServeEnd Run();

  // From any thread. The first call refuses new slots and waits for the open ones up to drain_ms;
  // the second does not wait.
  void BeginDrain();

  contract::HealthReply health() const { return service_.health().Snapshot(); }
  const contract::WorkerLimits& limits() const { return service_.limits(); }

 private:
  // One header that says why, then the end of the connection.
  void Refuse(transport::Connection* connection, contract::Code code);
  void AcceptLoop(transport::Listener* listener);
  void Post(ConnectionWorker* worker);
  // The next worker with something to do; null when `wait_ms` passed or a drain call came in.
  ConnectionWorker* NextWorker(int64_t wait_ms);
  void ServeOne(ConnectionWorker* worker);
  void StopListeners();
  void StopConnections();
  // Forgets connections whose thread is done; workers_mutex_ is held.
  void ReapLocked();

  const ServerOptions options_;
  const Clock* clock_;
  StepService service_;
  LogLimit refusal_log_;

  std::mutex queue_mutex_;
  std::condition_variable queue_changed_;
  std::deque<ConnectionWorker*> queue_;  // guarded by queue_mutex_
  int drain_calls_ = 0;                  // guarded by queue_mutex_

  std::mutex workers_mutex_;
  std::vector<std::unique_ptr<ConnectionWorker>> workers_;       // guarded by workers_mutex_
  std::vector<std::unique_ptr<transport::Listener>> listeners_;  // guarded by workers_mutex_
  std::vector<std::thread> acceptors_;                           // guarded by workers_mutex_
  bool is_closed_ = false;                                       // guarded by workers_mutex_
};

}  // namespace tp2::server
