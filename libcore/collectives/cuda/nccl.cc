#include "libcore/collectives/cuda/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::coll {

struct NcclTeam::Api {
  int (*get_version)(int*);
  int (*comm_init_all)(void**, int, const int*);
  int (*comm_destroy)(void*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  int (*group_start)();
  int (*group_end)();
  const char* (*error_string)(int);
};

namespace {

// Of ncclDataType_t and ncclRedOp_t.
constexpr int kFloat32 = 7;
constexpr int kSum = 0;

template <class Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

absl::Status Unavailable(const std::string& library, const std::string& got) {
  return MakeError(absl::StatusCode::kUnavailable, {.what = library,
                                                    .expected = "NCCL",
                                                    .got = got,
                                                    .next = "add its folder to LD_LIBRARY_PATH"});
}

}  // namespace

absl::StatusOr<NcclTeam> NcclTeam::Create(const std::vector<int>& ordinals,
                                          const std::string& library, const std::string& protocol) {
  setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/1);
  if (!protocol.empty()) setenv("NCCL_PROTO", protocol.c_str(), /*replace=*/1);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Unavailable(library, dlerror());
  static Api api;
  const bool has_all = Find(handle, "ncclGetVersion", api.get_version) &&
                       Find(handle, "ncclCommInitAll", api.comm_init_all) &&
                       Find(handle, "ncclCommDestroy", api.comm_destroy) &&
                       Find(handle, "ncclAllReduce", api.all_reduce) &&
                       Find(handle, "ncclGroupStart", api.group_start) &&
                       Find(handle, "ncclGroupEnd", api.group_end) &&
                       Find(handle, "ncclGetErrorString", api.error_string);
  if (!has_all) return Unavailable(library, "a library without its functions");
  NcclTeam team;
  team.api_ = &api;
  int version = 0;
  api.get_version(&version);
  team.version_ = absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  team.comms_.resize(ordinals.size());
  const int code =
      api.comm_init_all(team.comms_.data(), static_cast<int>(ordinals.size()), ordinals.data());
  if (code != 0) {
    team.comms_.clear();
    return Unavailable("ncclCommInitAll", api.error_string(code));
  }
  return team;
}

NcclTeam::NcclTeam(NcclTeam&& other) noexcept
    : api_(other.api_),
      comms_(std::exchange(other.comms_, {})),
      version_(std::move(other.version_)) {}

NcclTeam::~NcclTeam() {
  for (void* comm : comms_) api_->comm_destroy(comm);
}

absl::Status NcclTeam::AllReduce(const std::vector<const float*>& in,
                                 const std::vector<float*>& out, int64_t count,
                                 const std::vector<cudaStream_t>& streams) const {
  int code = api_->group_start();
  for (size_t rank = 0; code == 0 && rank < comms_.size(); ++rank) {
    code = api_->all_reduce(in[rank], out[rank], static_cast<size_t>(count), kFloat32, kSum,
                            comms_[rank], streams[rank]);
  }
  const int ended = api_->group_end();
  if (code == 0) code = ended;
  if (code == 0) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kAborted,
      {.what = "ncclAllReduce", .expected = "success", .got = api_->error_string(code)});
}

}  // namespace tp2::coll
