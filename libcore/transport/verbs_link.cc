#include "libcore/transport/verbs_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::transport {

VerbsLink::SlotMemory::~SlotMemory() {
  if (region_ != nullptr) (void)::ibv_dereg_mr(region_);
  if (bytes_ != nullptr) (void)::munmap(bytes_, kRingSlots * SlotStride(slot_bytes_));
}

bool VerbsLink::SlotMemory::Allocate(size_t slot_bytes) {
  void* pages = ::mmap(nullptr, kRingSlots * SlotStride(slot_bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  bytes_ = static_cast<std::byte*>(pages);
  slot_bytes_ = slot_bytes;
  return true;
}

bool VerbsLink::SlotMemory::Register(ibv_pd* domain, int access) {
  region_ = ::ibv_reg_mr(domain, bytes_, kRingSlots * SlotStride(slot_bytes_), access);
  return region_ != nullptr;
}

absl::StatusOr<std::unique_ptr<VerbsLink>> VerbsLink::Create(CmId id, const Sizes& sizes) {
  std::unique_ptr<VerbsLink> link(new VerbsLink(std::move(id)));
  TP2_RETURN_IF_ERROR(link->Prepare(sizes));
  return link;
}

absl::Status VerbsLink::Prepare(const Sizes& sizes) {
  domain_.reset(::ibv_alloc_pd(id_->verbs));
  if (domain_ == nullptr) return VerbsError("protection domain", errno);
  if (!ring_.Allocate(sizes.receive_slot_bytes) || !staging_.Allocate(sizes.send_slot_bytes)) {
    return VerbsError("slot memory", errno);
  }
  if (!ring_.Register(domain_.get(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) ||
      !staging_.Register(domain_.get(), 0)) {
    const size_t wanted_bytes =
        kRingSlots * (SlotStride(sizes.receive_slot_bytes) + SlotStride(sizes.send_slot_bytes));
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = "RDMA memory",
                      .expected = std::to_string(wanted_bytes) + " bytes that may be locked",
                      .got = ErrnoText(),
                      .next = "raise `ulimit -l` (LimitMEMLOCK=infinity in a unit)"});
  }
  channel_.reset(::ibv_create_comp_channel(id_->verbs));
  if (channel_ == nullptr) return VerbsError("completion channel", errno);
  (void)::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  completions_.reset(
      ::ibv_create_cq(id_->verbs, kReceives + kSends, nullptr, channel_.get(), /*comp_vector=*/0));
  if (completions_ == nullptr) return VerbsError("completion queue", errno);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.cap.max_send_wr = kSends;
  attributes.cap.max_recv_wr = kReceives;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  if (::rdma_create_qp(id_.get(), domain_.get(), &attributes) != 0) {
    return VerbsError("queue pair", errno);
  }
  for (int i = 0; i < kReceives; ++i) {
    if (!PostReceive()) return VerbsError("receive queue", errno);
  }
  return absl::OkStatus();
}

VerbsLink::~VerbsLink() {
  if (id_ != nullptr && id_->qp != nullptr) ::rdma_destroy_qp(id_.get());
}

RingAddress VerbsLink::ring_address() const {
  return {.address = reinterpret_cast<uint64_t>(ring_.Slot(0).data()),
          .remote_key = ring_.region()->rkey,
          .slot_bytes = static_cast<uint32_t>(ring_.Slot(0).size())};
}

bool VerbsLink::Post(const Write& write) {
  ibv_sge part{.addr = reinterpret_cast<uint64_t>(write.bytes.data()),
               .length = static_cast<uint32_t>(write.bytes.size()),
               .lkey = staging_.region()->lkey};
  ibv_send_wr request{};
  request.wr_id = write.tag;
  request.sg_list = &part;
  request.num_sge = write.bytes.empty() ? 0 : 1;
  request.opcode = write.immediate.has_value() ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(write.immediate.value_or(0));
  request.wr.rdma.remote_addr = write.remote_address;
  request.wr.rdma.rkey = write.remote_key;
  ibv_send_wr* refused = nullptr;
  return ::ibv_post_send(id_->qp, &request, &refused) == 0;
}

bool VerbsLink::PostReceive() {
  ibv_recv_wr request{};
  request.wr_id = kReceiveTag;
  ibv_recv_wr* refused = nullptr;
  return ::ibv_post_recv(id_->qp, &request, &refused) == 0;
}

void VerbsLink::TakeCompletionEvents() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (::ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    ::ibv_ack_cq_events(queue, 1);
  }
}

}  // namespace tp2::transport
