// What a checkpoint is, in text: one line per tensor with its content digest, and one digest over
// all lines. Two folders with equal identity hold the same tensors, however they are sharded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/digest.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

// XXH3-64 of each tensor's bytes; reads every byte once, in parallel.
std::vector<uint64_t> ContentDigests(const std::vector<TensorView>& tensors, ThreadPool& pool);

// `name dtype shape content-digest` lines, in the order of `tensors` (sorted by name).
std::string ManifestText(const std::vector<TensorView>& tensors,
                         const std::vector<uint64_t>& digests);

// SHA-256 of ManifestText.
Sha256Digest IdentityOf(const std::vector<TensorView>& tensors,
                        const std::vector<uint64_t>& digests);

}  // namespace tp2
