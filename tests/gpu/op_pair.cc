#include "tests/gpu/op_pair.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <tuple>

#include "libcore/base/check.h"
#include "libcore/checkpoint/synthetic.h"
#include "libcore/device/select.h"
#include "libcore/model/synthetic_shape.h"

namespace tp2 {
namespace {

constexpr uint64_t kSeed = 5;

// Removed at exit.
class ScratchFolder {
 public:
  ScratchFolder() : path_(testing::TempDir() + "/tp2_gpu_" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string SyntheticFolder(const std::string& shape) {
  static ScratchFolder scratch;
  const std::string folder = scratch.path() + "/" + shape;
  if (!std::filesystem::exists(folder)) {
    std::filesystem::create_directories(folder);
    ThreadPool pool;
    TP2_CHECK(WriteSynthetic(*FindSyntheticShape(shape), kSeed, folder, pool).ok());
  }
  return folder;
}

std::string WhyNoGpu() {
  static const absl::Status found = device::SelectDevice("").status();
  return std::string(found.message());
}

OpPair& GetOpPair(const std::string& shape, int tp, int rank, int multiprocessors) {
  static auto& pairs = *new std::map<std::tuple<std::string, int, int, int>, OpPair>();
  OpPair& pair = pairs[{shape, tp, rank, multiprocessors}];
  if (pair.cuda != nullptr) return pair;
  auto checkpoint = Checkpoint::Open(SyntheticFolder(shape));
  TP2_CHECK(checkpoint.ok());
  pair.checkpoint = *std::move(checkpoint);
  pair.config = pair.checkpoint->config();
  pair.plan = *MakeShardPlan(pair.config, tp, rank);
  pair.host = CutWeights(pair.config, pair.checkpoint->weights(), pair.plan);
  pair.cpu = std::make_unique<CpuOps<Bf16>>(pair.config, 1, 0);
  device::DeviceInfo device = *device::SelectDevice("");
  if (multiprocessors > 0) device.multiprocessors = multiprocessors;
  auto cuda = CudaOps::Create(pair.config, 1, kTestPositions, device);
  TP2_CHECK(cuda.ok());
  pair.cuda = *std::move(cuda);
  pair.card = pair.cuda->Place(0, pair.host);
  TP2_CHECK(pair.cuda->setup_status().ok());
  return pair;
}

}  // namespace tp2
