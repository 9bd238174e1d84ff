#include "libcore/ops/cuda/weights_placer.h"

#include <vector>

#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"
#include "libcore/exl3/linear.h"
#include "libcore/math/mixing.h"
#include "libcore/ops/cuda/kernels.h"

namespace tp2::cuda {
namespace {

// Rewrites views in place. Errors stick; later calls do nothing.
class Placer {
 public:
  explicit Placer(device::Arena& arena) : arena_(arena) {}

  template <class T>
  void Array(const T*& data, int64_t count) {
    Rows(data, count, count, 1);
  }
  void Half16(Half16View& view) { Array(view.bits, int64_t{view.rows} * view.columns); }
  void Matrix(exl3::MatrixView& matrix) {
    if (!status_.ok() || matrix.trellis == nullptr) return;
    const absl::StatusOr<exl3::MatrixView> placed = PlaceMatrix(matrix, arena_, staging_);
    if (placed.ok()) {
      matrix = *placed;
    } else {
      status_ = placed.status();
    }
  }
  void Expert(RankExpert& expert) {
    Matrix(expert.w1);
    Matrix(expert.w3);
    for (exl3::MatrixView& half : expert.w2) Matrix(half);
  }
  void Mix(MixWeights& mix, int dim) {
    Array(mix.fn, int64_t{kMixOutputs} * kStreams * dim);
    Array(mix.base, kMixOutputs);
    Array(mix.scale, 3);
  }
  void Output(OutputProjection& wo_a, int64_t rows, int64_t columns) {
    for (exl3::MatrixView& slice : wo_a.slices) Matrix(slice);
    if (wo_a.fp8 == nullptr) return;
    Array(wo_a.fp8, rows * columns);
    Array(wo_a.fp8_scale, rows / wo_a.fp8_block * (columns / wo_a.fp8_block));
  }
  const absl::Status& status() const { return status_; }

 private:
  template <class T>
  void Rows(const T*& data, int64_t pitch, int64_t row_count_values, int64_t rows) {
    if (!status_.ok() || data == nullptr) return;
    const absl::StatusOr<void*> copy = arena_.CopyRows(
        data, pitch * sizeof(T), row_count_values * sizeof(T), static_cast<size_t>(rows));
    if (copy.ok()) {
      data = static_cast<const T*>(*copy);
    } else {
      status_ = copy.status();
    }
  }

  device::Arena& arena_;
  RepackStaging staging_;
  absl::Status status_;
};

void PlaceStage(const DrafterConfig& config, RankStage& stage, Placer& placer) {
  const int64_t group_count = stage.wo_a.fp8 == nullptr
                                  ? static_cast<int64_t>(stage.wo_a.slices.size())
                                  : int64_t{config.o_groups} * stage.wq_b.n / config.query_values();
  for (exl3::MatrixView* matrix : {&stage.wq_a, &stage.wkv, &stage.wq_b}) placer.Matrix(*matrix);
  placer.Output(stage.wo_a, group_count * config.o_lora_rank, config.group_inputs());
  for (exl3::MatrixView& half : stage.wo_b) placer.Matrix(half);
  for (Half16View* norm : {&stage.q_norm, &stage.kv_norm, &stage.attn_norm, &stage.ffn_norm}) {
    placer.Half16(*norm);
  }
  placer.Array(stage.attn_sink, stage.wq_b.n / config.head_dim);
  placer.Mix(stage.attn_mix, config.dim);
  placer.Mix(stage.ffn_mix, config.dim);
  placer.Half16(stage.gate);
  placer.Array(stage.gate_bias, config.experts);
  for (RankExpert& expert : stage.experts) placer.Expert(expert);
  placer.Expert(stage.shared);
}

DeviceExpert DeviceExpertOf(const RankExpert& expert) {
  DeviceExpert device;
  device.w1 = DeviceViewOf(expert.w1);
  device.w3 = DeviceViewOf(expert.w3);
  for (size_t half = 0; half < expert.w2.size(); ++half) {
    device.w2[half] = DeviceViewOf(expert.w2[half]);
  }
  return device;
}

}  // namespace

absl::StatusOr<exl3::MatrixView> PlaceMatrix(const exl3::MatrixView& host, device::Arena& arena,
                                             RepackStaging& staging) {
  exl3::MatrixView card = host;
  card.tile_row_pitch = int64_t{host.n} / exl3::kTile * host.tile_units();
  const int rows = host.k / exl3::kTile;
  const size_t row_bytes = card.tile_row_pitch * sizeof(uint16_t);
  const size_t pitch_bytes = host.tile_row_pitch * sizeof(uint16_t);
  if (exl3::HasPortableBits(host)) {
    TP2_ASSIGN_OR_RETURN(card.trellis, staging.CopyRows(host, row_bytes));
    TP2_ASSIGN_OR_RETURN(void* const packed, arena.Take(row_bytes * rows));
    LaunchRepack(DeviceViewOf(card), static_cast<uint16_t*>(packed), {.stream = cudaStreamLegacy});
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy)));
    card.trellis = static_cast<const uint16_t*>(packed);
  } else {
    TP2_ASSIGN_OR_RETURN(const void* const copy,
                         arena.CopyRows(host.trellis, pitch_bytes, row_bytes, rows));
    card.trellis = static_cast<const uint16_t*>(copy);
  }
  const auto place = [&arena](const Fp16*& values, int64_t count) -> absl::Status {
    const size_t bytes = static_cast<size_t>(count) * sizeof(Fp16);
    TP2_ASSIGN_OR_RETURN(const void* const copy, arena.CopyRows(values, bytes, bytes, 1));
    values = static_cast<const Fp16*>(copy);
    return absl::OkStatus();
  };
  TP2_RETURN_IF_ERROR(place(card.suh, card.k));
  TP2_RETURN_IF_ERROR(place(card.svh, card.n));
  return card;
}

absl::StatusOr<const uint16_t*> RepackStaging::CopyRows(const exl3::MatrixView& host,
                                                        size_t row_bytes) {
  const size_t rows = static_cast<size_t>(host.k / exl3::kTile);
  const int64_t units = static_cast<int64_t>(row_bytes / sizeof(uint16_t) * rows);
  if (units > static_cast<int64_t>(buffer_.size())) {
    TP2_ASSIGN_OR_RETURN(buffer_, device::Buffer<uint16_t>::Create(units));
  }
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpy2D(buffer_.data(), row_bytes, host.trellis,
                                            host.tile_row_pitch * sizeof(uint16_t), row_bytes, rows,
                                            cudaMemcpyHostToDevice)));
  // A copy from pageable memory may still be on its way when the call returns.
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaStreamSynchronize(cudaStreamLegacy)));
  return buffer_.data();
}

absl::StatusOr<RankWeights> PlaceWeights(const DrafterConfig& config, const RankWeights& host,
                                         device::Arena& arena) {
  RankWeights weights = host;
  Placer placer(arena);
  for (Half16View* view : {&weights.embed, &weights.main_norm, &weights.final_norm,
                           &weights.markov_embed, &weights.markov_head, &weights.confidence}) {
    placer.Half16(*view);
  }
  placer.Matrix(weights.main_proj);
  placer.Matrix(weights.head);
  placer.Array(weights.head_mix_fn, int64_t{kStreams} * kStreams * config.dim);
  placer.Array(weights.head_mix_base, kStreams);
  placer.Array(weights.head_mix_scale, 1);
  for (RankStage& stage : weights.stages) PlaceStage(config, stage, placer);
  TP2_RETURN_IF_ERROR(placer.status());
  return weights;
}

absl::StatusOr<const DeviceExpert*> PlaceExpertTable(const RankStage& stage, device::Arena& arena) {
  std::vector<DeviceExpert> table;
  for (const RankExpert& expert : stage.experts) table.push_back(DeviceExpertOf(expert));
  const size_t bytes = table.size() * sizeof(DeviceExpert);
  TP2_ASSIGN_OR_RETURN(void* const copy, arena.CopyRows(table.data(), bytes, bytes, 1));
  return static_cast<const DeviceExpert*>(copy);
}

}  // namespace tp2::cuda
