// Deterministic synthetic checkpoints: random trellis bits, scales chosen so that activations stay
// near 1 and clamps, routing and top-2 margins are exercised. The same bytes on every machine and
// for every number of threads. Statistics follow the golden v41-tiny pack.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/safetensors_writer.h"
#include "libcore/model/synthetic_shape.h"

namespace tp2 {

inline constexpr int64_t kMaxShardBytes = int64_t{2} << 30;

// Writes config.json, shards and index into `dir`, an existing empty folder. Streams: memory stays
// below 100 MB for every shape.
absl::Status WriteSynthetic(const SyntheticShape& shape, uint64_t seed, const std::string& dir,
                            ThreadPool& pool);

// Names, dtypes and shapes that WriteSynthetic will write, and their bytes together.
std::vector<TensorSpec> SyntheticSpecs(const SyntheticShape& shape);
int64_t SyntheticBytes(const SyntheticShape& shape);

}  // namespace tp2
