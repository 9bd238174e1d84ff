// dump_rounds MODEL_DIR INPUTS.safetensors OUT.safetensors [--unrounded] [--no-fake-quant]
// Runs the rounds of an inputs file (layout of tests/golden/v41-tiny/inputs.safetensors) and writes
// every intermediate tensor under the golden files' names, for tests/reference/compare_dump.py.
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/safetensors.h"
#include "libcore/checkpoint/safetensors_writer.h"
#include "libcore/drafter/cpu_drafter.h"
#include "tests/support/golden.h"

namespace tp2 {
namespace {

struct Dumped {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

bool IsIds(const std::string& name) {
  return name.find("ids") != std::string::npos || name == "drafts";
}

class Dump final : public StepObserver {
 public:
  void StartRound(const std::string& prefix) { prefix_ = prefix; }

  void OnTensor(const std::string& name, std::vector<int64_t> shape,
                std::span<const float> values) override {
    // The step shows the best two position by position; the files hold them as one tensor.
    const bool is_best = name.rfind("top2_", 0) == 0;
    const std::string file_name =
        prefix_ + "." + (is_best ? name.substr(0, name.rfind('.')) : name);
    Dumped& tensor = tensors_[file_name];
    if (tensor.spec.shape.empty()) {
      tensor.spec = {file_name, IsIds(file_name) ? DType::kI32 : DType::kF32, {0}};
      tensor.spec.shape.insert(tensor.spec.shape.end(), shape.begin() + 1, shape.end());
      // One request: its confidences are a vector.
      if (name == "confidence") tensor.spec.shape = {0};
    }
    tensor.spec.shape[0] += name == "confidence" ? shape[1] : shape[0];
    for (const float value : values) {
      const int32_t id = static_cast<int32_t>(value);
      const void* source =
          tensor.spec.dtype == DType::kI32 ? static_cast<const void*>(&id) : &value;
      const auto* bytes = static_cast<const std::byte*>(source);
      tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + 4);
    }
  }

  absl::Status Write(const std::string& path) const {
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors_) specs.push_back(tensor.spec);
    return WriteSafetensors(
        path, specs,
        [this](const TensorSpec& spec, const ByteSink& sink) {
          return sink(tensors_.at(spec.name).bytes);
        },
        IfExists::kReplace);
  }

 private:
  std::string prefix_;
  std::map<std::string, Dumped> tensors_;
};

struct Options {
  std::string model_dir, inputs, out;
  bool is_unrounded = false;
  std::optional<KvFakeQuant> kv_fake_quant = std::nullopt;
};

template <class Ops>
absl::Status Run(const Options& options) {
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model_dir));
  TP2_ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(checkpoint->config(), 1, 0));
  const auto drafter =
      MakeCpuDrafter<Ops>(std::move(checkpoint), {&plan, 1},
                          {.max_positions = 1048576, .kv_fake_quant = options.kv_fake_quant});
  Dump dump;
  drafter->set_observer(&dump);
  const GoldenTensors inputs(options.inputs);
  const int64_t row_values = drafter->info().config.tap_values();
  for (const GoldenRound& round : GoldenRounds(inputs)) {
    dump.StartRound(round.name);
    if (round.starts_request) TP2_RETURN_IF_ERROR(drafter->ResetSlot(0, round.position));
    const std::vector<Bf16> taps = inputs.Bf16s(round.request + ".taps");
    StepEntry entry;
    entry.rows = {.slot = 0,
                  .position = round.position,
                  .row_count = round.row_count,
                  .values = {taps.data() + round.first_row * row_values,
                             static_cast<size_t>(round.row_count * row_values)}};
    entry.anchor = round.anchor;
    TP2_ASSIGN_OR_RETURN(const StepOutputs outputs, drafter->Step({.entries = {&entry, 1}}));
    const auto& tokens = outputs.entries[0].tokens;
    dump.OnTensor("drafts", {kBlockRows}, std::vector<float>(tokens.begin(), tokens.end()));
  }
  return dump.Write(options.out);
}

}  // namespace
}  // namespace tp2

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: dump_rounds MODEL_DIR INPUTS OUT [--unrounded] [--no-fake-quant]\n";
    return 2;
  }
  tp2::Options options = {.model_dir = argv[1], .inputs = argv[2], .out = argv[3]};
  for (int i = 4; i < argc; ++i) {
    if (std::strcmp(argv[i], "--unrounded") == 0) options.is_unrounded = true;
    if (std::strcmp(argv[i], "--no-fake-quant") == 0)
      options.kv_fake_quant = tp2::KvFakeQuant::kNone;
  }
  const absl::Status status = options.is_unrounded ? tp2::Run<tp2::CpuOps<float>>(options)
                                                   : tp2::Run<tp2::CpuOps<tp2::Bf16>>(options);
  if (!status.ok()) std::cerr << "dump_rounds: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
