// Turns the files' tensors into typed views, one registry entry at a time. Every take checks
// presence, dtype, shape and alignment; values are only noted here and checked later in parallel
// (value_checks.h). Tensors that nobody took are unexpected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/checkpoint/tensor_view.h"
#include "libcore/checkpoint/value_checks.h"
#include "libcore/checkpoint/weights.h"

namespace tp2 {

// Tensors that the files hold in another form than the weights need, expanded. Owned by the
// checkpoint.
class ExpandedTensors {
 public:
  template <class T>
  std::span<T> Make(size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    buffers_.push_back(std::make_unique<std::byte[]>(count * sizeof(T)));
    return {reinterpret_cast<T*>(buffers_.back().get()), count};
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
};

// The first error wins: later takes return empty views, so that callers read straight down and ask
// once. Thread-compatible.
class TensorBinder {
 public:
  // `tensors` and `expanded` must outlive the views; `model_dir` names missing tensors' place.
  TensorBinder(const DrafterConfig& config, const std::vector<TensorView>& tensors,
               std::string model_dir, ExpandedTensors& expanded);

  exl3::MatrixView Matrix(const std::string& name);
  OutputProjection GroupedProjection(const std::string& name);
  Half16View Half(const std::string& name);
  const float* Floats(const std::string& name);
  // Takes `name` when it is there.
  void SkipUnused(const std::string& name);

  // Complains about the first tensor that nobody took and the first registry entry that nobody
  // asked for (a bug of ours).
  void Finish();

  const absl::Status& status() const { return status_; }
  const std::vector<ValueCheck>& value_checks() const { return checks_; }

 private:
  struct Wanted {
    std::vector<int64_t> shape;
    std::vector<DType> dtypes;
  };

  const TensorRule& Rule(const std::string& name, Storage storage);
  const TensorView* Find(const std::string& name) const;
  // The tensor, checked and marked as taken; nullptr after an error.
  const TensorView* Take(const std::string& name, const Wanted& wanted);
  void Missing(const std::string& name, const Wanted& wanted);
  void Complain(const TensorView& view, const std::string& expected, const std::string& got,
                const std::string& next);
  void Note(const TensorView& view, ValueRule rule) { checks_.push_back({&view, rule}); }

  exl3::MatrixView BindExl3(const std::string& name, int outputs, int inputs);
  void BindTrellis(const std::string& name, exl3::MatrixView& matrix);
  void BindCodebook(const std::string& name, exl3::MatrixView& matrix);
  const Fp16* BindChannelScales(const std::string& name, const char* full, const char* legacy,
                                int count);
  const float* BindBlockScales(const std::string& name, const std::vector<int64_t>& shape);

  const DrafterConfig& config_;
  std::string model_dir_;
  ExpandedTensors& expanded_;
  std::map<std::string, TensorRule> rules_;
  std::map<std::string_view, const TensorView*> tensors_;
  std::map<std::string_view, bool> is_taken_;
  std::map<std::string, bool> is_bound_;
  std::vector<ValueCheck> checks_;
  absl::Status status_;
};

}  // namespace tp2
