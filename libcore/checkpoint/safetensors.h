// The safetensors file format, read from bytes that may be hostile: an 8-byte little-endian header
// length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes without
// holes, overlaps or a tail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

// A header of ours for 4700 tensors has 0.6 MB; the limit bounds what the JSON reader allocates.
inline constexpr size_t kMaxHeaderBytes = 32 << 20;

// Views of all tensors in `file_bytes`, in the order of their bytes. `where` becomes the views'
// file. Errors: kDataLoss when the bytes end too early, kInvalidArgument for everything else.
absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const std::byte> file_bytes,
                                                         const std::string& where);

}  // namespace tp2
