// Access to tests/golden/v41-tiny: DeepSeek's reference results, and the distance measures of its
// README.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "libcore/base/file.h"
#include "libcore/checkpoint/tensor_view.h"
#include "libcore/math/bf16.h"

namespace tp2 {

inline const char kGoldenDir[] = TP2_SOURCE_DIR "/tests/golden/v41-tiny";

// The golden checkpoint of the source tree, or the one in the working folder on a machine without
// sources.
inline std::string GoldenFolder() {
  return std::filesystem::exists(kGoldenDir) ? kGoldenDir : "golden/v41-tiny";
}

// One safetensors file, by path or by its name in the golden folder; every numeric dtype reads as
// fp32. Missing names abort the test.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& file);

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<float> Floats(const std::string& name) const;
  std::vector<int32_t> Ints(const std::string& name) const;
  std::vector<Bf16> Bf16s(const std::string& name) const;
  std::vector<std::string> Names() const;

 private:
  const TensorView& At(const std::string& name) const;

  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
};

// One draft round of one request, in the order in which the golden run made them.
struct GoldenRound {
  std::string name;     // "A.3"
  std::string request;  // "A"
  int first_row = 0;    // of the request's taps
  int row_count = 0;
  int64_t position = 0;  // of the first inserted row
  int32_t anchor = 0;
  bool starts_request = false;
};

std::vector<GoldenRound> GoldenRounds(const GoldenTensors& inputs);

// ||x - golden|| / ||golden||.
double RelativeError(const std::vector<float>& x, const std::vector<float>& golden);
// max |x - golden| / max |golden|.
double MaxError(const std::vector<float>& x, const std::vector<float>& golden);

}  // namespace tp2
