#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/checkpoint/safetensors.h"

namespace tp2 {

GoldenTensors::GoldenTensors(const std::string& file) {
  const bool is_path = file.find('/') != std::string::npos;
  auto mapped = MappedFile::Open(is_path ? file : std::string(kGoldenDir) + "/" + file);
  TP2_CHECK(mapped.ok());
  file_ = std::move(*mapped);
  auto views = ParseSafetensors(file_.bytes(), file);
  TP2_CHECK(views.ok());
  for (TensorView& view : *views) tensors_[view.name] = view;
}

const TensorView& GoldenTensors::At(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) std::fprintf(stderr, "golden tensor %s is missing\n", name.c_str());
  TP2_CHECK(found != tensors_.end());
  return found->second;
}

std::vector<float> GoldenTensors::Floats(const std::string& name) const {
  const TensorView& view = At(name);
  std::vector<float> values;
  for (int64_t i = 0; i < view.element_count(); ++i) {
    switch (view.dtype) {
      case DType::kF32:
        values.push_back(view.As<float>()[i]);
        break;
      case DType::kBf16:
        values.push_back(ToFloat(view.As<Bf16>()[i]));
        break;
      case DType::kI32:
        values.push_back(static_cast<float>(view.As<int32_t>()[i]));
        break;
      default:
        TP2_CHECK(false);
    }
  }
  return values;
}

std::vector<int32_t> GoldenTensors::Ints(const std::string& name) const {
  const TensorView& view = At(name);
  TP2_CHECK(view.dtype == DType::kI32);
  return {view.As<int32_t>(), view.As<int32_t>() + view.element_count()};
}

std::vector<Bf16> GoldenTensors::Bf16s(const std::string& name) const {
  const TensorView& view = At(name);
  TP2_CHECK(view.dtype == DType::kBf16);
  return {view.As<Bf16>(), view.As<Bf16>() + view.element_count()};
}

std::vector<std::string> GoldenTensors::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::vector<GoldenRound> GoldenRounds(const GoldenTensors& inputs) {
  std::vector<GoldenRound> rounds;
  for (const std::string& name : inputs.Names()) {
    const size_t end = name.rfind(".taps");
    if (end == std::string::npos) continue;
    const std::string request = name.substr(0, end);
    const std::string prefix = request + ".";
    const std::vector<int32_t> positions = inputs.Ints(prefix + "positions");
    const std::vector<int32_t> counts = inputs.Ints(prefix + "insert_rows");
    const std::vector<int32_t> anchors = inputs.Ints(prefix + "anchors");
    int row = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      rounds.push_back({.name = prefix + std::to_string(i),
                        .request = request,
                        .first_row = row,
                        .row_count = counts[i],
                        .position = positions[row],
                        .anchor = anchors[i],
                        .starts_request = i == 0});
      row += counts[i];
    }
  }
  return rounds;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& golden) {
  TP2_CHECK(x.size() == golden.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - golden[i];
    difference += d * d;
    norm += static_cast<double>(golden[i]) * golden[i];
  }
  return std::sqrt(difference / norm);
}

double MaxError(const std::vector<float>& x, const std::vector<float>& golden) {
  TP2_CHECK(x.size() == golden.size());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::fabs(static_cast<double>(x[i]) - golden[i]);
    // A comparison that is false for NaN would let NaN pass as no difference.
    difference = d <= difference ? difference : d;
    largest = std::max(largest, std::fabs(static_cast<double>(golden[i])));
  }
  return difference / largest;
}

}  // namespace tp2
