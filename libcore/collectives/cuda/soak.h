// Random mixed collectives with verification of every element: the workload of tests, qualification
// and soaks. Every operation is preceded by an optional stall and by the payload's computation, and
// followed by its check, all on the rank's stream, so that a whole script can be captured.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/rng.h"
#include "libcore/collectives/cuda/cuda_pair.h"
#include "libcore/device/buffer.h"
#include "libcore/device/stream.h"

namespace tp2::coll {

enum class OpKind : int { kSum, kRounded, kInPlace, kBest, kBestTwo, kClose };

struct ScriptOp {
  OpKind kind = OpKind::kSum;
  int64_t count = 0;  // values, or requests of an exchange
  cuda::Grid grid;
  uint64_t stall_ns[kMaxRanks] = {};
};

struct ScriptOptions {
  uint64_t seed = 1;
  int op_count = 50;
  int64_t max_words = 163840;
  int max_blocks = 64;
  bool has_exchanges = true;
  uint64_t max_stall_ns = 20'000;  // of a tenth of the operations, on one rank
};

// The same for one seed. Ends with a closing exchange.
std::vector<ScriptOp> MakeScript(const ScriptOptions& options, int rank_count);

// Buffers and streams of every rank. Thread-compatible.
class Workload {
 public:
  static absl::StatusOr<Workload> Create(CudaPair& pair, uint64_t seed);
  Workload(Workload&&) = default;

  // Enqueues the rank's part of the operation with its check.
  absl::Status Enqueue(int rank, const ScriptOp& op, const cuda::Fault* fault = nullptr);
  // The whole operation of a single-card pair on rank 0's stream.
  absl::Status EnqueueBoth(const ScriptOp& op);
  cudaStream_t stream(int rank) const { return ranks_[rank].stream.get(); }
  CudaPair& pair() { return *pair_; }

  // Elements that were not what they should be, since Create; after a drain.
  absl::StatusOr<uint64_t> WrongCount();

 private:
  struct Rank {
    device::Stream stream;
    device::Buffer<uint32_t> turn;
    device::Buffer<float> x, sum;
    device::Buffer<Bf16> rounded;
    device::Buffer<TopTwo> best;
    device::Buffer<int32_t> token, runner_up;
    device::Buffer<float> margin;
    device::Buffer<unsigned long long> wrong;
  };

  Workload(CudaPair& pair, uint64_t seed) : pair_(&pair), seed_(seed) {}
  absl::Status Before(int rank, const ScriptOp& op, cudaStream_t stream);
  absl::Status After(int rank, const ScriptOp& op, cudaStream_t stream);
  cuda::ReduceArgs ReduceArgsOf(int rank, const ScriptOp& op);
  cuda::ExchangeArgs ExchangeArgsOf(int rank, const ScriptOp& op);

  CudaPair* pair_;
  uint64_t seed_;
  std::vector<Rank> ranks_;
};

struct SoakOptions {
  uint64_t seed = 1;
  int64_t collectives = 1000;
  int script_count = 4;
  ScriptOptions script;   // its seed is replaced
  bool is_fused = false;  // single card, cooperative launches
  bool is_eager = false;
};

struct SoakResult {
  int64_t collectives = 0;
  int64_t steps = 0;         // closing exchanges that were run
  int64_t closed_steps = 0;  // that rank 0 saw succeed
  uint64_t wrong = 0;
  uint32_t error_bits = 0;  // of all ranks
  double seconds = 0;
};

// Ends early at the first error bit or wrong element.
absl::StatusOr<SoakResult> RunSoak(CudaPair& pair, const SoakOptions& options);

}  // namespace tp2::coll
