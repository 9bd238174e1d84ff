// An RDMA client that writes what it likes, and a connection that behaves beside it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "libcore/transport/socket_util.h"
#include "libcore/transport/verbs.h"
#include "libcore/transport/verbs_events.h"
#include "libcore/transport/verbs_link.h"
#include "tests/rdma/big_rows.h"

namespace tp2::transport {

constexpr int64_t kWaitMs = 10'000;

// Four header bytes: the body's length.
inline std::optional<uint32_t> LengthSizer(std::span<const std::byte> header) {
  uint32_t value;
  std::memcpy(&value, header.data(), sizeof(value));
  return value;
}
inline FrameRule LengthRule() {
  return {.header_bytes = 4, .max_body_bytes = 1000, .sizer = LengthSizer};
}
inline VerbsOptions PlainOptions() { return {.identity = {7}, .max_send_bytes = 1004}; }

class RawClient {
 public:
  using PrivateData = std::array<std::byte, kRequestDataBytes>;
  using Change = std::function<void(PrivateData*)>;

  // Asks for a connection with private data that `change` has had in hand, and takes whatever
  // comes. Errors: what kept it from asking.
  absl::Status Connect(const TcpAddress& address, const VerbsUuid& identity, size_t slot_bytes,
                       const Change& change = {}) {
    auto opened = CmChannel::Open();
    if (!opened.ok()) return opened.status();
    channel_ = std::move(opened).value();
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) != 0) return Failure("id");
    CmId owner(id);
    const ResolvedAddress resolved = ResolveTcpAddress(address, 0).value();
    auto* target = const_cast<sockaddr*>(resolved.get());
    constexpr int kResolveMs = 5000;
    if (::rdma_resolve_addr(id, nullptr, target, kResolveMs) != 0) return Failure("address");
    if (!Wait(RDMA_CM_EVENT_ADDR_RESOLVED)) return Failure("address");
    if (::rdma_resolve_route(id, kResolveMs) != 0) return Failure("route");
    if (!Wait(RDMA_CM_EVENT_ROUTE_RESOLVED)) return Failure("route");
    auto link = VerbsLink::Create(
        std::move(owner), {.receive_slot_bytes = slot_bytes, .send_slot_bytes = slot_bytes});
    if (!link.ok()) return link.status();
    link_ = std::move(link).value();
    PrivateData data = EncodeRequest({.identity = identity, .ring = link_->ring_address()});
    if (change) change(&data);
    rdma_conn_param parameters{};
    parameters.private_data = data.data();
    parameters.private_data_len = static_cast<uint8_t>(data.size());
    parameters.retry_count = parameters.rnr_retry_count = 7;
    if (::rdma_connect(link_->id(), &parameters) != 0) return Failure("connect");
    answer_ = channel_.Wait(DeadlineFrom(kWaitMs)).value_or(CmEvent{});
    Acceptance acceptance;
    if (DecodeAcceptance(answer_.private_data(), 4, &acceptance) == Refusal::kNone) {
      remote_ = acceptance.ring;
    }
    return absl::OkStatus();
  }

  const CmEvent& answer() const { return answer_; }
  const RingAddress& remote() const { return remote_; }
  bool Wait(rdma_cm_event_type type) {
    const std::optional<CmEvent> event = channel_.Wait(DeadlineFrom(kWaitMs));
    return event.has_value() && event->type == type;
  }

  // `bytes` to `offset` of the worker's ring.
  bool Write(std::span<const std::byte> bytes, std::optional<uint32_t> immediate,
             uint64_t offset = 0, uint32_t key_change = 0) {
    const std::span<std::byte> staged = link_->staging_slot(0).first(bytes.size());
    std::copy(bytes.begin(), bytes.end(), staged.begin());
    return link_->Post({.bytes = staged,
                        .remote_address = remote_.address + offset,
                        .remote_key = remote_.remote_key ^ key_change,
                        .immediate = immediate}) &&
           HasWritten();
  }
  bool Write(uint32_t body_bytes, size_t sent_body_bytes, std::optional<uint32_t> immediate) {
    std::vector<std::byte> frame(4 + sent_body_bytes, std::byte{9});
    std::memcpy(frame.data(), &body_bytes, sizeof(body_bytes));
    return Write(frame, immediate);
  }

 private:
  static absl::Status Failure(const char* what) { return VerbsError(what, errno); }

  // True when the next completion of a write is a good one.
  bool HasWritten() {
    const int64_t deadline_ms = DeadlineFrom(kWaitMs);
    while (NowMs() < deadline_ms) {
      ibv_wc completion;
      if (link_->Poll({&completion, 1}) == 0) continue;
      if (completion.wr_id == VerbsLink::kReceiveTag && completion.status == IBV_WC_SUCCESS) {
        (void)link_->PostReceive();
        continue;
      }
      return completion.status == IBV_WC_SUCCESS;
    }
    return false;
  }

  CmChannel channel_;
  std::unique_ptr<VerbsLink> link_;
  CmEvent answer_;
  RingAddress remote_;
};

// A listener, and what connects to it.
class RdmaBench {
 public:
  explicit RdmaBench(const VerbsOptions& options = PlainOptions())
      : listener_(
            VerbsListen({.host = tp2::testing::RdmaAddress(), .port = 0}, LengthRule(), options)
                .value()),
        address_(ParseTcpAddress(listener_->address()).value()) {}

  const TcpAddress& address() const { return address_; }

  // Our end of what `connect` connects, or null when nothing came of it.
  std::unique_ptr<Connection> AcceptWhile(const std::function<void()>& connect) {
    std::thread connector([&] {
      connect();
      is_over_ = true;
    });
    std::unique_ptr<Connection> connection;
    constexpr int64_t kSliceMs = 100;
    while (connection == nullptr && !is_over_) connection = listener_->Accept(kSliceMs).value();
    if (connection == nullptr) connection = listener_->Accept(kSliceMs).value();
    connector.join();
    is_over_ = false;
    return connection;
  }
  std::unique_ptr<Connection> AcceptRaw(RawClient* client, const RawClient::Change& change = {}) {
    return AcceptWhile([&] {
      EXPECT_TRUE(client->Connect(address_, PlainOptions().identity, 1004, change).ok());
    });
  }
  absl::StatusOr<std::unique_ptr<Connection>> TryConnect(const VerbsOptions& options,
                                                         std::unique_ptr<Connection>* ours) {
    absl::StatusOr<std::unique_ptr<Connection>> theirs = absl::UnknownError("not tried");
    *ours = AcceptWhile([&] { theirs = VerbsConnect(address_, LengthRule(), options, kWaitMs); });
    return theirs;
  }

 private:
  std::unique_ptr<Listener> listener_;
  TcpAddress address_;
  std::atomic<bool> is_over_{false};
};

// Both ends of a connection that behaves.
struct HonestPair {
  explicit HonestPair(RdmaBench* bench) {
    auto connected = bench->TryConnect(PlainOptions(), &server);
    if (connected.ok()) client = std::move(connected).value();
  }
  // Whether a frame gets through.
  bool Works() {
    const uint32_t body_bytes = 3;
    std::array<std::byte, 4> header;
    std::memcpy(header.data(), &body_bytes, sizeof(body_bytes));
    const std::array<std::byte, 3> body = {std::byte{1}, std::byte{2}, std::byte{3}};
    if (client == nullptr || server == nullptr) return false;
    if (!client->Send(header, body, kWaitMs).ok()) return false;
    const Received received = server->Receive(kWaitMs);
    if (received.event != Event::kFrame || received.frame.size() != 7) return false;
    server->Release(received.frame);
    return true;
  }

  std::unique_ptr<Connection> server;
  std::unique_ptr<Connection> client;
};

}  // namespace tp2::transport
