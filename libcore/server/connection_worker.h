// One client connection: a thread that receives, answers what needs no engine (HEALTH, PING, BUSY,
// broken frames), hands everything else to the controller and sends the replies.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/server/health.h"
#include "libcore/server/reply.h"
#include "libcore/server/statistics.h"
#include "libcore/server/step_service.h"
#include "libcore/transport/transport.h"

namespace tp2::server {

class ConnectionWorker {
 public:
  struct Options {
    int64_t idle_close_ms = 60'000;
    int64_t send_timeout_ms = 3'000;
    int64_t hello_ms = 5'000;      // from the connect to a session
    bool requires_secret = false;  // then HEALTH and PING need a session too
  };
  // `post` hands this worker to the controller, which then calls Serve or, once `is_gone()`,
  // Retire. It may be called from the worker's thread at any time until Retire.
  using Post = std::function<void(ConnectionWorker*)>;

  ConnectionWorker(std::unique_ptr<transport::Connection> connection, const Options& options,
                   const Clock* clock, const Health* health, Statistics* statistics, Post post);
  // Retire must have been called.
  ~ConnectionWorker();
  ConnectionWorker(const ConnectionWorker&) = delete;
  ConnectionWorker& operator=(const ConnectionWorker&) = delete;

  // Controller side.
  bool is_gone() const { return is_gone_.load(); }
  void Serve(StepService* service);   // answers the posted request
  void Retire(StepService* service);  // ends the session; the thread then ends
  // The thread sends what is owed, then posts itself as gone.
  void RequestStop();

  // True once Retire was called and the thread needs no more than a join.
  bool is_retired() const { return is_retired_.load(); }

 private:
  void Run();
  // Each returns false when the connection is to end.
  bool OnFrame(std::span<std::byte> frame);
  void OnBadHeader(std::span<const std::byte> frame);
  bool SendOwedReply();
  bool SendNow(const contract::FrameHeader& request, ReplyFrame* reply, int64_t arrival_ns);
  bool Send(const ReplyFrame& reply);
  void WaitForReply();
  int64_t IdleLeftMs() const;

  std::unique_ptr<transport::Connection> connection_;
  const Options options_;
  const Clock* clock_;
  const Health* health_;
  Statistics* statistics_;
  const Post post_;

  // The request under way: written by the thread before it posts, read by the controller.
  ServiceRequest request_;
  std::span<std::byte> request_frame_;
  bool is_outstanding_ = false;   // thread only
  int64_t last_activity_ns_ = 0;  // thread only
  int64_t begin_ns_ = 0;          // thread only

  Session session_;  // controller only
  std::atomic<uint64_t> session_id_{0};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_gone_{false};
  std::atomic<bool> is_retired_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reply_ready_ = false;  // guarded by mutex_
  ReplyFrame reply_;             // the controller's until is_reply_ready_, then the thread's

  std::thread thread_;  // last: everything above exists when it starts
};

}  // namespace tp2::server
