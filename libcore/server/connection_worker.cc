#include "libcore/server/connection_worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libcore/base/check.h"

namespace tp2::server {

using contract::Code;
using contract::Type;
using transport::Event;

namespace {

// A stranger's first frame may be on its way already: the limit holds before anything is read.
std::unique_ptr<transport::Connection> WithRoomForHello(
    std::unique_ptr<transport::Connection> connection) {
  connection->LimitBody(contract::kHelloBytes);
  return connection;
}

}  // namespace

ConnectionWorker::ConnectionWorker(std::unique_ptr<transport::Connection> connection,
                                   const Options& options, const Clock* clock, const Health* health,
                                   Statistics* statistics, Post post)
    : connection_(WithRoomForHello(std::move(connection))),
      options_(options),
      clock_(clock),
      health_(health),
      statistics_(statistics),
      post_(std::move(post)),
      thread_([this] { Run(); }) {}

ConnectionWorker::~ConnectionWorker() { thread_.join(); }

void ConnectionWorker::Serve(StepService* service) {
  service->Handle(&session_, request_, &reply_);
  session_id_.store(session_.grant.session);
  {
    const std::lock_guard lock(mutex_);
    is_reply_ready_ = true;
    changed_.notify_all();
  }
  connection_->Wake();
}

void ConnectionWorker::Retire(StepService* service) {
  service->EndSession(&session_);
  const std::lock_guard lock(mutex_);
  is_retired_.store(true);
  changed_.notify_all();
}

void ConnectionWorker::RequestStop() {
  is_stopping_.store(true);
  connection_->Wake();
}

void ConnectionWorker::Run() {
  begin_ns_ = last_activity_ns_ = clock_->NowNs();
  bool is_up = true;
  std::string reason = "server stops";
  while (is_up && !is_stopping_.load()) {
    const transport::Received received = connection_->Receive(is_outstanding_ ? -1 : IdleLeftMs());
    switch (received.event) {
      case Event::kFrame:
        last_activity_ns_ = clock_->NowNs();
        is_up = OnFrame(received.frame);
        reason = "closed after the reply";
        break;
      case Event::kBadHeader:
        OnBadHeader(received.frame);
        is_up = false;
        reason = "bad frame";
        break;
      case Event::kWoken:
        break;
      case Event::kTimeout:
        is_up = is_outstanding_ || IdleLeftMs() > 0;
        reason = session_id_.load() == 0 ? "no HELLO in time" : "idle";
        break;
      case Event::kClosed:
      case Event::kTruncated:
      case Event::kStalled:
        is_up = false;
        reason = received.event == Event::kClosed      ? "closed by the peer"
                 : received.event == Event::kTruncated ? "ended inside a frame"
                                                       : "sender too slow";
        break;
    }
    if (is_up) is_up = SendOwedReply();
  }
  // A peer that ended only its own direction still reads: it gets the reply it waits for.
  if (is_outstanding_) {
    WaitForReply();
    (void)SendOwedReply();
  }
  spdlog::info("connection {} ended: {}", connection_->peer(), reason);
  statistics_->NoteClosed(reason);
  is_gone_.store(true);
  post_(this);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_retired_.load(); });
  connection_->Shutdown();
}

int64_t ConnectionWorker::IdleLeftMs() const {
  const int64_t now_ns = clock_->NowNs();
  int64_t left_ms = options_.idle_close_ms - (now_ns - last_activity_ns_) / 1'000'000;
  if (session_id_.load() == 0) {
    left_ms = std::min(left_ms, options_.hello_ms - (now_ns - begin_ns_) / 1'000'000);
  }
  return std::max<int64_t>(left_ms, 0);
}

bool ConnectionWorker::OnFrame(std::span<std::byte> frame) {
  const int64_t arrival_ns = clock_->NowNs();
  statistics_->NoteFrameIn(frame.size());
  contract::FrameHeader header;
  const Code code = DecodeHeader(frame, contract::Direction::kRequest, &header);
  TP2_CHECK(code == Code::kOk);  // the sizer let it through
  const std::span<const std::byte> body = frame.subspan(contract::kHeaderBytes);
  const uint64_t body_hash = contract::HashBody(body);
  const std::optional<Type> type = contract::RequestType(header);
  const bool is_unsequenced = type == Type::kHealth || type == Type::kPing;
  const bool is_hash_wrong =
      (header.flags & contract::kFlagBodyHash) != 0 && header.body_hash != body_hash;
  if (!is_hash_wrong && !is_unsequenced && !is_outstanding_) {
    request_ = {.header = header, .body = body, .body_hash = body_hash, .arrival_ns = arrival_ns};
    request_frame_ = frame;
    is_outstanding_ = true;
    post_(this);
    return true;
  }
  ReplyFrame reply;
  if (is_hash_wrong) {
    reply.Refuse(Code::kBodyHash);
  } else if (is_unsequenced && options_.requires_secret && session_id_.load() == 0) {
    reply.Refuse(Code::kNotAuthorized);
  } else if (is_unsequenced) {
    AnswerUnsequenced(*type, header, body, session_id_.load(), *health_, &reply);
  } else {
    reply.Refuse(Code::kBusy);
  }
  connection_->Release(frame);
  return SendNow(header, &reply, arrival_ns);
}

void ConnectionWorker::OnBadHeader(std::span<const std::byte> frame) {
  contract::FrameHeader header;  // stays empty when magic or checksum are wrong
  Code code = DecodeHeader(frame, contract::Direction::kRequest, &header);
  if (code == Code::kOk) code = Code::kTooLarge;  // the connection's own limit
  ReplyFrame reply;
  reply.Refuse(code);
  header.flags = 0;
  (void)SendNow(header, &reply, clock_->NowNs());
}

bool ConnectionWorker::SendOwedReply() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_reply_ready_) return true;
    is_reply_ready_ = false;
  }
  const bool is_bye = request_.header.type == static_cast<uint16_t>(Type::kBye);
  is_outstanding_ = false;
  last_activity_ns_ = clock_->NowNs();
  connection_->Release(request_frame_);
  if (session_id_.load() != 0) connection_->LimitBody(contract::kMaxBodyBytes);
  return Send(reply_) && !is_bye && !contract::ClosesConnection(reply_.code);
}

bool ConnectionWorker::SendNow(const contract::FrameHeader& request, ReplyFrame* reply,
                               int64_t arrival_ns) {
  FinishReply(request,
              {.is_draining = health_->is_draining() && session_id_.load() != 0,
               .spent_us = (clock_->NowNs() - arrival_ns) / 1000},
              reply);
  return Send(*reply) && !contract::ClosesConnection(reply->code);
}

bool ConnectionWorker::Send(const ReplyFrame& reply) {
  statistics_->NoteReply(reply.code, reply.frame().size());
  const absl::Status status =
      connection_->Send(reply.header(), reply.body(), options_.send_timeout_ms);
  if (!status.ok()) spdlog::warn("{}", std::string(status.message()));
  return status.ok();
}

void ConnectionWorker::WaitForReply() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_reply_ready_; });
}

}  // namespace tp2::server
