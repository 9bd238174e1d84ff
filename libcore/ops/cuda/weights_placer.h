// Copies one rank's weights to the device: every view of RankWeights becomes the same view of
// device memory, contiguous. Kernels get them through RankWeights; the experts also as a table that
// kernels index.
#pragma once

#include "absl/status/statusor.h"
#include "libcore/device/arena.h"
#include "libcore/device/buffer.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/shard/rank_weights.h"

namespace tp2::cuda {

inline DeviceMatrix DeviceViewOf(const exl3::MatrixView& matrix) {
  return {.trellis = matrix.trellis,
          .tile_row_pitch = matrix.tile_row_pitch,
          .suh = matrix.suh,
          .svh = matrix.svh,
          .k = matrix.k,
          .n = matrix.n,
          .bits = matrix.bits,
          .codebook = static_cast<int>(matrix.codebook)};
}

inline DeviceHalf16 DeviceViewOf(const Half16View& view) {
  return {view.bits, view.is_fp16, view.rows, view.columns};
}

// Device memory in which a matrix waits for its repacking; grows to the largest one.
class RepackStaging {
 public:
  // Copies the rows of tiles of `host`, row_bytes each, side by side.
  absl::StatusOr<const uint16_t*> CopyRows(const exl3::MatrixView& host, size_t row_bytes);

 private:
  device::Buffer<uint16_t> buffer_;
};

// The matrix in device memory, its trellis as the kernels of its codebook want it (DeviceMatrix).
absl::StatusOr<exl3::MatrixView> PlaceMatrix(const exl3::MatrixView& host, device::Arena& arena,
                                             RepackStaging& staging);

// Errors: kResourceExhausted when the card is too small, kAborted for device faults.
absl::StatusOr<RankWeights> PlaceWeights(const DrafterConfig& config, const RankWeights& host,
                                         device::Arena& arena);

// The routed experts' matrices in device memory. `stage` is already on the device.
absl::StatusOr<const DeviceExpert*> PlaceExpertTable(const RankStage& stage, device::Arena& arena);

}  // namespace tp2::cuda
