#include "libcore/server/step_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/contract/frame.h"

namespace tp2::server {

StepServer::StepServer(StepEngine* engine, const ServerOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      service_(engine, options.service, clock),
      refusal_log_(clock),
      spin_budget_(options.spin_threads) {
  loop_ns_.store(clock->NowNs());
}

StepServer::~StepServer() {
  StopListeners();
  StopConnections();
}

transport::FrameRule StepServer::RequestRule(const ServerOptions& options) {
  return {.header_bytes = contract::kHeaderBytes,
          .max_body_bytes = contract::kMaxBodyBytes,
          .sizer = contract::RequestBodyBytes,
          .frame_timeout_ms = options.frame_timeout_ms};
}

void StepServer::Listen(std::unique_ptr<transport::Listener> listener) {
  const std::lock_guard lock(workers_mutex_);
  if (is_closed_) return;
  transport::Listener* raw = listener.get();
  listeners_.push_back(std::move(listener));
  acceptors_.emplace_back([this, raw] { AcceptLoop(raw); });
}

void StepServer::AcceptLoop(transport::Listener* listener) {
  while (true) {
    absl::StatusOr<std::unique_ptr<transport::Connection>> connection = listener->Accept(-1);
    if (!connection.ok()) {
      // Out of descriptors, most likely: serving goes on, and some may come back.
      spdlog::warn("{}", std::string(connection.status().message()));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (*connection == nullptr) return;
    if (!options_.allowed_clients.is_empty() &&
        !options_.allowed_clients.Contains((*connection)->peer())) {
      Refuse(connection->get(), contract::Code::kNotAuthorized);
      continue;
    }
    Adopt(std::move(connection).value());
  }
}

void StepServer::Refuse(transport::Connection* connection, contract::Code code) {
  if (const std::optional<int64_t> unsaid = refusal_log_.Pass()) {
    spdlog::warn("connection {} refused: {} ({} more unsaid)", connection->peer(),
                 contract::CodeName(code), *unsaid);
  }
  service_.statistics().NoteRefused(code);
  ReplyFrame reply;
  reply.Refuse(code);
  contract::FrameHeader hello;  // which every client says first
  hello.type = static_cast<uint16_t>(contract::Type::kHello);
  FinishReply(hello, {}, &reply);
  // An empty socket buffer takes a header at once; whoever has none to take it goes without.
  (void)connection->Send(reply.header(), {}, 0);
  connection->Shutdown();
}

void StepServer::Adopt(std::unique_ptr<transport::Connection> connection) {
  const std::lock_guard lock(workers_mutex_);
  ReapLocked();
  if (is_closed_) return;
  if (static_cast<int>(workers_.size()) >= options_.max_connections) {
    return Refuse(connection.get(), contract::Code::kTooManyConnections);
  }
  spdlog::info("connection {} accepted", connection->peer());
  service_.statistics().NoteAccepted();
  workers_.push_back(std::make_unique<ConnectionWorker>(
      std::move(connection),
      ConnectionWorker::Options{.idle_close_ms = options_.service.idle_close_ms,
                                .send_timeout_ms = options_.send_timeout_ms,
                                .hello_ms = options_.hello_ms,
                                .requires_secret = options_.service.secret != nullptr,
                                .spin_ms = options_.spin_ms,
                                .spin_budget = &spin_budget_},
      clock_, &service_.health(), &service_.statistics(),
      ConnectionWorker::Hooks{
          .try_serve = [this](ConnectionWorker* worker) { return TryServe(worker); },
          .settle = [this](Session* session) { service_.Settle(session); },
          .post = [this](ConnectionWorker* worker) { Post(worker); }}));
}

void StepServer::ReapLocked() {
  std::erase_if(workers_, [](const auto& worker) { return worker->is_retired(); });
}

bool StepServer::TryServe(ConnectionWorker* worker) {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn.owns_lock() || is_turn_wanted_.load()) return false;
  {
    const std::lock_guard lock(queue_mutex_);
    if (!queue_.empty()) return false;
  }
  visitor_.store(worker);
  worker->ServeHere(&service_);
  visitor_.store(nullptr);
  last_served_ns_.store(clock_->NowNs());
  if (service_.must_exit() || service_.health().is_draining()) queue_changed_.notify_one();
  return true;
}

void StepServer::Post(ConnectionWorker* worker) {
  const std::lock_guard lock(queue_mutex_);
  queue_.push_back(worker);
  queue_changed_.notify_one();
}

void StepServer::WaitForWork(int64_t wait_ms) {
  std::unique_lock lock(queue_mutex_);
  if (queue_.empty()) queue_changed_.wait_for(lock, std::chrono::milliseconds(wait_ms));
}

ConnectionWorker* StepServer::NextWorker() {
  const std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return nullptr;
  ConnectionWorker* worker = queue_.front();
  queue_.pop_front();
  return worker;
}

std::unique_lock<Turn> StepServer::TakeTurn() {
  // Longer than a STEP takes: a reply that is due soon can be waited for.
  constexpr std::chrono::milliseconds kPatience(20);
  std::unique_lock turn(turn_, std::defer_lock);
  while (!turn.try_lock_for(kPatience)) {
    is_turn_wanted_.store(true);
    if (ConnectionWorker* visitor = visitor_.load()) visitor->Attend();
  }
  is_turn_wanted_.store(false);
  return turn;
}

void StepServer::ServeOne(ConnectionWorker* worker) {
  if (worker->is_gone()) {
    worker->Retire(&service_);
  } else {
    worker->Serve(&service_);
    last_served_ns_.store(clock_->NowNs());
  }
}

bool StepServer::IsOver() {
  if (service_.must_exit()) return true;
  const std::lock_guard lock(queue_mutex_);
  if (drain_calls_ == 0) return false;
  if (drain_end_ns_ == 0) {
    drain_end_ns_ = clock_->NowNs() + options_.drain_ms * 1'000'000;
    service_.health().BeginDrain();
    spdlog::info("draining: {} slots open", service_.open_slots());
  }
  const bool is_late = drain_calls_ > 1 || clock_->NowNs() >= drain_end_ns_;
  return queue_.empty() && (service_.open_slots() == 0 || is_late);
}

ServeEnd StepServer::Run() {
  // Long enough to cost nothing, short enough to notice the end of a drain in time.
  constexpr int64_t kTickMs = 50;
  while (true) {
    WaitForWork(kTickMs);
    {
      const std::unique_lock turn = TakeTurn();
      if (ConnectionWorker* worker = NextWorker()) ServeOne(worker);
      if (IsOver()) break;
    }
    Tick();
  }
  StopListeners();
  StopConnections();
  if (service_.is_engine_lost()) return ServeEnd::kEngineLost;
  return service_.must_exit() ? ServeEnd::kTooManyFailures : ServeEnd::kDrained;
}

void StepServer::Tick() {
  loop_ns_.store(clock_->NowNs());
  {
    // Descriptors of those who left are not kept until somebody comes.
    const std::lock_guard lock(workers_mutex_);
    ReapLocked();
  }
  if (options_.tick) options_.tick();
  UseIdleGap();
}

void StepServer::UseIdleGap() {
  // Rounds come some 20 times a second: a gap is what is longer than a client's own pauses in one.
  constexpr int64_t kGapNs = 5'000'000;
  const auto is_gap = [this] { return clock_->NowNs() - last_served_ns_.load() >= kGapNs; };
  if (!is_gap()) return;
  const std::unique_lock turn = TakeTurn();
  if (!is_gap() || service_.must_exit()) return;
  service_.MaintainWhileIdle();
  if (options_.canary_ms <= 0 || service_.health().is_draining()) return;
  if (service_.health().IsOlderThan(options_.canary_ms)) (void)service_.RunCanary();
}

absl::Status StepServer::CheckEngine() {
  (void)service_.RunCanary();
  const contract::HealthReply reply = health();
  if (reply.failures_in_a_row == 0) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kAborted,
      {.what = "first STEP of the engine", .expected = "drafts", .got = reply.last_error});
}

std::string StepServer::MetricsText() const {
  return service_.metrics().Text(health(), counts(), service_.limits());
}

std::string StepServer::NotReadyReason() const {
  const contract::HealthReply reply = health();
  const bool takes_clients = reply.state == contract::WorkerState::kReady ||
                             reply.state == contract::WorkerState::kDegraded;
  if (!takes_clients) return std::string("state ") + contract::WorkerStateName(reply.state);
  // With every slot taken there is no room for a canary, and no room for a client either.
  if (reply.open_slots >= static_cast<uint32_t>(service_.limits().slot_count)) return "slots full";
  const int64_t limit_ms = 3 * options_.canary_ms;
  if (options_.canary_ms > 0 && service_.health().IsOlderThan(limit_ms)) {
    return "no STEP succeeded for " + std::to_string(limit_ms) + " ms";
  }
  return "";
}

void StepServer::BeginDrain() {
  const std::lock_guard lock(queue_mutex_);
  ++drain_calls_;
  queue_changed_.notify_one();
}

void StepServer::StopListeners() {
  std::vector<std::thread> acceptors;
  {
    const std::lock_guard lock(workers_mutex_);
    is_closed_ = true;
    for (const auto& listener : listeners_) listener->Stop();
    acceptors.swap(acceptors_);
  }
  for (std::thread& acceptor : acceptors) acceptor.join();
}

void StepServer::StopConnections() {
  // The threads need the controller to retire them, so the queue is served to the end.
  constexpr int64_t kTickMs = 10;
  while (true) {
    {
      const std::lock_guard lock(workers_mutex_);
      ReapLocked();
      if (workers_.empty()) return;
      for (const auto& worker : workers_) worker->RequestStop();
    }
    WaitForWork(kTickMs);
    const std::unique_lock turn = TakeTurn();
    if (ConnectionWorker* worker = NextWorker()) ServeOne(worker);
  }
}

}  // namespace tp2::server
