// Candidates of a kernel table as graph replays on cards.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/tune_stopwatch.h"
#include "libcore/collectives/cuda/chain_timing.h"
#include "libcore/device/buffer.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/select.h"
#include "libcore/ops/cuda/cuda_ops.h"

namespace tp2::bench {
namespace {

using tuning::Choice;
using tuning::KernelChoices;
using tuning::KernelKey;
using tuning::ProductLaunch;

// Launches behind each other in a graph, each over weights of its own: the cards' events count in
// steps of half a microsecond, and the shortest products take ten.
constexpr int kProductChain = 8;
constexpr int kReduceChain = 60;
constexpr int64_t kRandomBytes = int64_t{4} << 20;
constexpr int64_t kTokens = 64768;  // exchanges are not timed, but a pair has their ranges

// Random bits: zeros would switch fewer wires and run at higher clocks.
absl::Status FillRandom(void* out, int64_t bytes) {
  static const std::vector<uint64_t>* const kValues = [] {
    auto* values = new std::vector<uint64_t>(kRandomBytes / sizeof(uint64_t));
    Rng rng(7);
    for (uint64_t& value : *values) value = rng.Next();
    return values;
  }();
  for (int64_t done = 0; done < bytes; done += kRandomBytes) {
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpy(
        static_cast<std::byte*>(out) + done, kValues->data(),
        static_cast<size_t>(std::min(kRandomBytes, bytes - done)), cudaMemcpyHostToDevice)));
  }
  return absl::OkStatus();
}

template <class T>
absl::StatusOr<device::Buffer<T>> Uploaded(const std::vector<T>& host) {
  TP2_ASSIGN_OR_RETURN(auto buffer, device::Buffer<T>::Create(static_cast<int64_t>(host.size())));
  TP2_RETURN_IF_ERROR(TP2_CUDA(
      cudaMemcpy(buffer.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice)));
  return buffer;
}

// What one launch reads and writes, kProductChain times.
struct ProductData {
  std::vector<int> outputs;
  int k = 0, bits = 0, rows = 0;
  device::Buffer<uint16_t> trellis;  // [chain][matrix]
  device::Buffer<Fp16> ones;         // signs of all
  device::Buffer<float> x, y;
  std::vector<exl3::MatrixView> matrices;  // [chain][matrix]
  std::vector<LinearOpArgs> products;      // [chain][matrix]

  static absl::StatusOr<ProductData> Create(const ProductLaunch& launch) {
    ProductData data;
    data.outputs = launch.outputs;
    data.k = launch.k;
    data.bits = launch.bits;
    data.rows = launch.rows;
    int64_t all_outputs = 0;
    for (const int outputs : launch.outputs) all_outputs += outputs;
    const int64_t units = int64_t{launch.k} * all_outputs / 16 * launch.bits;
    TP2_ASSIGN_OR_RETURN(data.trellis, device::Buffer<uint16_t>::Create(kProductChain * units));
    TP2_RETURN_IF_ERROR(FillRandom(data.trellis.data(), kProductChain * units * 2));
    const auto longest = std::max<int64_t>(launch.k, launch.max_outputs);
    TP2_ASSIGN_OR_RETURN(data.ones,
                         Uploaded(std::vector<Fp16>(static_cast<size_t>(longest), Fp16{0x3C00})));
    std::vector<float> x(static_cast<size_t>(launch.rows) * launch.k);
    Rng rng(8);
    for (float& value : x) value = rng.Signed();
    TP2_ASSIGN_OR_RETURN(data.x, Uploaded(x));
    TP2_ASSIGN_OR_RETURN(data.y, device::Buffer<float>::Create(launch.rows * all_outputs));
    data.Point();
    return data;
  }

  std::span<const LinearOpArgs> Link(int i) const {
    return std::span(products).subspan(i * outputs.size(), outputs.size());
  }

 private:
  void Point() {
    const uint16_t* from = trellis.data();
    for (int link = 0; link < kProductChain; ++link) {
      for (const int n : outputs) {
        matrices.push_back({.k = k,
                            .n = n,
                            .bits = bits,
                            .trellis = from,
                            .tile_row_pitch = n * bits,
                            .suh = ones.data(),
                            .svh = ones.data()});
        from += int64_t{k} * n / 16 * bits;
      }
    }
    for (size_t i = 0; i < matrices.size(); ++i) {
      float* to = i % outputs.size() == 0 ? y.data() : products.back().y;
      if (i % outputs.size() != 0) to += int64_t{rows} * matrices[i - 1].n;
      products.push_back({&matrices[i], x.data(), k, rows, to});
    }
  }
};

class ProductStopwatch : public tuning::Stopwatch {
 public:
  ProductStopwatch(std::unique_ptr<CudaOps> ops, std::vector<ProductLaunch> launches)
      : ops_(std::move(ops)), launches_(std::move(launches)) {}

  absl::Status Initialize(int ordinal) {
    ops_->set_uses_graphs(true);
    int l2_bytes = 0;
    TP2_RETURN_IF_ERROR(
        TP2_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, ordinal)));
    TP2_ASSIGN_OR_RETURN(flush_, device::Buffer<std::byte>::Create(2 * int64_t{l2_bytes}));
    return absl::OkStatus();
  }

  absl::Status Prepare(const KernelKey& key, std::span<const Choice> choices) override {
    const auto launch =
        std::find_if(launches_.begin(), launches_.end(),
                     [&key](const ProductLaunch& one) { return KernelKey(one.key()) == key; });
    if (launch == launches_.end()) return absl::InternalError("a key without a launch");
    data_.reset();
    TP2_ASSIGN_OR_RETURN(data_, ProductData::Create(*launch));
    for (size_t i = 0; i < choices.size(); ++i) {
      TP2_RETURN_IF_ERROR(Record(key, choices[i], i));
    }
    for (size_t i = 0; i < choices.size(); ++i) TP2_RETURN_IF_ERROR(Replay(i).status());
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Time(size_t index, int replays) override {
    std::vector<double> us;
    for (int i = 0; i < replays; ++i) {
      TP2_ASSIGN_OR_RETURN(us.emplace_back(), Replay(index));
    }
    return us;
  }

 private:
  // The op set records graphs of all kinds alike.
  static GraphKey GraphOf(size_t index) {
    return GraphKey::Draft(static_cast<int>(index) + 1, 0, false);
  }

  absl::Status Record(const KernelKey& key, const Choice& choice, size_t index) {
    tuning::KernelTable table;
    table.entries[key] = {choice, std::nullopt, std::nullopt, std::nullopt};
    const auto kernels = std::make_shared<KernelChoices>(std::move(table), "candidate");
    ops_->set_kernels(kernels);
    ops_->Record(GraphOf(index), [this] {
      for (int link = 0; link < kProductChain; ++link) ops_->Linear(0, data_->Link(link));
    });
    TP2_RETURN_IF_ERROR(ops_->setup_status());
    const tuning::TableUse use = kernels->use();
    if (use.found == 1 && use.missing == 0) return absl::OkStatus();
    // What is timed must be what the table will say.
    return MakeError(absl::StatusCode::kInternal, {.what = tuning::KeyName(key),
                                                   .expected = "a launch that asks for it",
                                                   .got = tuning::Describe(use)});
  }

  // Microseconds of one launch. The flush in front is enqueued without waiting: the graph stands
  // behind it before the clock starts.
  absl::StatusOr<double> Replay(size_t index) {
    ++flush_value_;
    TP2_RETURN_IF_ERROR(TP2_CUDA(
        cudaMemsetAsync(flush_.data(), flush_value_ & 0xFF, flush_.size(), ops_->stream())));
    ops_->Mark(StepMark::kBegin);
    ops_->Run(GraphOf(index), [] {});
    ops_->Mark(StepMark::kDrafted);
    TP2_RETURN_IF_ERROR(ops_->error(0).Take());
    const int64_t ns = ops_->NsBetween(0, StepMark::kBegin, StepMark::kDrafted);
    return static_cast<double>(ns) / 1e3 / kProductChain;
  }

  std::unique_ptr<CudaOps> ops_;
  std::vector<ProductLaunch> launches_;
  std::optional<ProductData> data_;
  device::Buffer<std::byte> flush_;
  int flush_value_ = 0;
};

class ReduceStopwatch : public tuning::Stopwatch {
 public:
  absl::Status Initialize(const std::vector<device::DeviceInfo>& cards, int64_t max_words) {
    for (const coll::ProtocolKind protocol :
         {coll::ProtocolKind::kLine, coll::ProtocolKind::kAck}) {
      Team& team = At(protocol);
      TP2_ASSIGN_OR_RETURN(
          team.pair, coll::CudaPair::Create({.cards = cards,
                                             .protocol = protocol,
                                             .max_words = max_words,
                                             .tokens = {{0, kTokens}, {kTokens, 2 * kTokens}}}));
      TP2_ASSIGN_OR_RETURN(coll::ChainTimer timer, coll::ChainTimer::Create(*team.pair));
      team.timer.emplace(std::move(timer));
    }
    return absl::OkStatus();
  }

  absl::Status Prepare(const KernelKey& key, std::span<const Choice> choices) override {
    runs_.clear();
    for (const Choice& choice : choices) {
      const auto& reduce = std::get<tuning::ReduceChoice>(choice);
      const bool is_ack = reduce.protocol == tuning::PairProtocol::kAck;
      coll::ChainTimer& timer =
          *At(is_ack ? coll::ProtocolKind::kAck : coll::ProtocolKind::kLine).timer;
      // A grid that the cards cannot hold is refused here and is its candidate's failure.
      Run run = {&timer, timer.Build({coll::ChainKind::kRounded,
                                      std::get<tuning::ReduceKey>(key).words,
                                      {reduce.blocks, reduce.threads}},
                                     kReduceChain)};
      if (run.chain.ok()) {
        TP2_ASSIGN_OR_RETURN(const int64_t wrong, timer.Verify(*run.chain));
        if (wrong != 0) {
          return absl::InternalError(absl::StrCat(tuning::ChoiceText(choice), ": ", wrong,
                                                  " wrong sums of an all-reduce"));
        }
      }
      runs_.push_back(std::move(run));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Time(size_t index, int replays) override {
    const Run& run = runs_[index];
    TP2_RETURN_IF_ERROR(run.chain.status());
    std::vector<double> us;
    for (int i = 0; i < replays; ++i) {
      TP2_ASSIGN_OR_RETURN(const coll::ReplayTime time, run.timer->Replay(*run.chain));
      us.push_back(time.slowest_us / kReduceChain);
    }
    return us;
  }

 private:
  struct Team {
    std::unique_ptr<coll::CudaPair> pair;
    std::optional<coll::ChainTimer> timer;  // goes before its pair
  };
  struct Run {
    coll::ChainTimer* timer;
    absl::StatusOr<coll::Chain> chain;
  };

  Team& At(coll::ProtocolKind protocol) { return teams_[static_cast<size_t>(protocol)]; }

  std::array<Team, 2> teams_;
  std::vector<Run> runs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeProductStopwatch(
    const DrafterConfig& config, const std::string& device_uuid,
    std::vector<tuning::ProductLaunch> launches) {
  TP2_ASSIGN_OR_RETURN(const device::DeviceInfo card, device::SelectDevice(device_uuid));
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<CudaOps> ops, CudaOps::Create(config, 1, 1, card));
  auto stopwatch = std::make_unique<ProductStopwatch>(std::move(ops), std::move(launches));
  TP2_RETURN_IF_ERROR(stopwatch->Initialize(card.ordinal));
  return stopwatch;
}

absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeReduceStopwatch(
    const std::vector<std::string>& device_uuids, int64_t max_words) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards,
                       device::SelectDevices(device_uuids, 2));
  auto stopwatch = std::make_unique<ReduceStopwatch>();
  TP2_RETURN_IF_ERROR(stopwatch->Initialize(cards, max_words));
  return stopwatch;
}

}  // namespace tp2::bench
