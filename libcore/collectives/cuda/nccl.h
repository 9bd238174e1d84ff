// NCCL, opened at run time: the third way, for comparison and for cards without peer access. Only
// the few entry points that an all-reduce needs, declared from NCCL's public interface.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::coll {

// Thread-compatible. One controller drives all ranks of the process.
class NcclTeam {
 public:
  // NVLink multicast stays off: a program that uses it can put a host's cards out of service.
  // `protocol` is LL, LL128 or Simple, or empty for NCCL's own choice; the first team of a process
  // chooses for all, because NCCL reads its environment once. Errors: kUnavailable when `library`
  // cannot be opened.
  static absl::StatusOr<NcclTeam> Create(const std::vector<int>& ordinals,
                                         const std::string& library = "libnccl.so.2",
                                         const std::string& protocol = "");
  ~NcclTeam();
  NcclTeam(NcclTeam&& other) noexcept;
  NcclTeam& operator=(NcclTeam&&) = delete;

  // fp32 sums of `count` values on every rank; `out[r]` may be `in[r]`. May be captured on all
  // streams at once.
  absl::Status AllReduce(const std::vector<const float*>& in, const std::vector<float*>& out,
                         int64_t count, const std::vector<cudaStream_t>& streams) const;
  // "2.28.9"
  const std::string& version() const { return version_; }

 private:
  struct Api;
  NcclTeam() = default;

  const Api* api_ = nullptr;
  std::vector<void*> comms_;
  std::string version_;
};

}  // namespace tp2::coll
