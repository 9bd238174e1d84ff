// A drafter checkpoint folder, opened: config, mapped shards, typed weights and digests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/digest.h"
#include "libcore/checkpoint/tensor_view.h"
#include "libcore/checkpoint/weights.h"
#include "libcore/model/drafter_config.h"

namespace tp2 {

// Owns the maps that `weights` points into; move the pointer, not the object. Thread-safe once
// loaded.
class Checkpoint {
 public:
  // Reads DIR/config.json, the index and every shard header; refuses, by name, anything missing,
  // unexpected, of another dtype or shape, doubly flagged, misaligned or non-finite. Pages of
  // trellis data are touched only by the digest. Errors: kInvalidArgument, kDataLoss; one line
  // each.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& model_dir);

  virtual ~Checkpoint() = default;
  virtual const DrafterConfig& config() const = 0;
  virtual const DrafterWeights& weights() const = 0;
  virtual const std::vector<TensorView>& tensors()
      const = 0;  // the drafter's tensors, sorted by name

  // SHA-256 over the manifest: one `name dtype shape content-digest` line per tensor, sorted. Reads
  // every byte once; later calls return the stored value.
  virtual Sha256Digest IdentityDigest() const = 0;
};

}  // namespace tp2
