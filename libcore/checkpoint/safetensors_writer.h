// Writes safetensors files and sharded folders while the data is being produced: nothing larger
// than a caller's chunk is held in memory, and a file appears complete or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libcore/base/file.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kOther;  // not kOther when written
  std::vector<int64_t> shape;

  int64_t element_count() const;
  int64_t byte_count() const { return element_count() * DTypeBytes(dtype); }
};

// Takes the next bytes of the tensor being written, in order.
using ByteSink = std::function<absl::Status(std::span<const std::byte>)>;
// Sends exactly spec.byte_count() bytes to the sink, in chunks of any number of bytes.
using TensorProducer = std::function<absl::Status(const TensorSpec& spec, const ByteSink& sink)>;

// One file. Tensors lie widest dtype first, then by name, so that each is aligned to its element
// without the holes that the format forbids; the header is padded to 8 bytes. Errors: those of the
// producer and of AtomicFileWriter.
absl::Status WriteSafetensors(const std::string& path, std::vector<TensorSpec> specs,
                              const TensorProducer& produce, IfExists if_exists);

// A folder's shards of at most `max_shard_bytes` of data each (one larger tensor has a shard of its
// own) and the index, into an existing folder: `model.safetensors`, or
// `model-00001-of-0000N.safetensors` and so on.
absl::Status WriteShards(const std::string& dir, std::vector<TensorSpec> specs,
                         int64_t max_shard_bytes, const TensorProducer& produce);

}  // namespace tp2
