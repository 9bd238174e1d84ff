#include "libcore/exl3/packer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"
#include "libcore/exl3/decode.h"

namespace tp2::exl3 {
namespace {

constexpr int kStates = 65536;
constexpr double kMul1Deviation = 1.0003102;  // over all 65536 states
constexpr double kHalfPairDeviation = 1.2439;

// Positions by which pass 1 looks beyond the place where the ring is closed.
constexpr int kLookAhead = 64;

using TileTargets = std::array<float, kTileWeights>;  // in position order

// Bits that a position must add: its new bits equal `value` under `mask`.
struct Forced {
  uint16_t mask = 0;
  uint16_t value = 0;
};

class BeamSearch {
 public:
  BeamSearch(const PackOptions& options, int positions)
      : bits_(options.bits),
        width_(static_cast<size_t>(options.beam_width)),
        values_(ValueTable(options.codebook)) {
    steps_.reserve(static_cast<size_t>(positions));
  }

  // Starts from a known state before the first position.
  void StartFrom(uint16_t state) { beam_ = {{0.0f, state, -1}}; }

  // Starts with the states whose values are nearest to the first target: any history is allowed.
  void StartFree(float target, Codebook codebook) {
    const std::vector<uint16_t>& order = StatesByValue(codebook);
    const auto is_below = [this](uint16_t state, float value) { return values_[state] < value; };
    auto high = std::lower_bound(order.begin(), order.end(), target, is_below);
    auto low = high;
    beam_.clear();
    while (beam_.size() < width_) {
      const bool takes_low =
          high == order.end() ||
          (low != order.begin() && target - values_[*(low - 1)] <= values_[*high] - target);
      const uint16_t state = takes_low ? *--low : *high++;
      beam_.push_back({Cost(state, target), state, -1});
    }
    steps_.push_back(beam_);
  }

  void Extend(float target, Forced forced) {
    candidates_.clear();
    for (int parent = 0; parent < static_cast<int>(beam_.size()); ++parent) {
      for (int added = 0; added < 1 << bits_; ++added) {
        if ((added & forced.mask) != forced.value) continue;
        const auto state = static_cast<uint16_t>((beam_[parent].state << bits_) | added);
        candidates_.push_back({beam_[parent].cost + Cost(state, target), state, parent});
      }
    }
    const auto is_better = [](const Survivor& a, const Survivor& b) {
      return a.cost < b.cost || (a.cost == b.cost && a.state < b.state);
    };
    if (candidates_.size() > width_) {
      std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(width_),
                       candidates_.end(), is_better);
      candidates_.resize(width_);
    }
    beam_ = candidates_;
    steps_.push_back(beam_);
  }

  // The states of the cheapest path, one per recorded position.
  std::vector<uint16_t> BestPath() const {
    const auto best =
        std::min_element(beam_.begin(), beam_.end(),
                         [](const Survivor& a, const Survivor& b) { return a.cost < b.cost; });
    auto index = static_cast<int>(best - beam_.begin());
    std::vector<uint16_t> path(steps_.size());
    for (size_t step = steps_.size(); step-- > 0;) {
      path[step] = steps_[step][static_cast<size_t>(index)].state;
      index = steps_[step][static_cast<size_t>(index)].parent;
    }
    return path;
  }

 private:
  struct Survivor {
    float cost;
    uint16_t state;
    int parent;
  };

  static const std::vector<uint16_t>& StatesByValue(Codebook codebook) {
    static const std::array<std::vector<uint16_t>, 3> orders = [] {
      std::array<std::vector<uint16_t>, 3> built;
      for (const Codebook each : {Codebook::k3Inst, Codebook::kMcg, Codebook::kMul1}) {
        std::vector<uint16_t>& order = built[static_cast<size_t>(each)];
        order.resize(kStates);
        std::iota(order.begin(), order.end(), uint16_t{0});
        const float* values = ValueTable(each);
        std::stable_sort(order.begin(), order.end(),
                         [values](uint16_t a, uint16_t b) { return values[a] < values[b]; });
      }
      return built;
    }();
    return orders[static_cast<size_t>(codebook)];
  }

  float Cost(uint16_t state, float target) const {
    const float difference = values_[state] - target;
    return difference * difference;
  }

  int bits_;
  size_t width_;
  const float* values_;
  std::vector<Survivor> beam_, candidates_;
  std::vector<std::vector<Survivor>> steps_;
};

// A good state for position 255: from half a ring before it to a little beyond it.
uint16_t ChooseSeam(const TileTargets& targets, const PackOptions& options) {
  constexpr int kBegin = kTileWeights / 2;
  BeamSearch search(options, kTileWeights - kBegin + kLookAhead);
  search.StartFree(targets[kBegin], options.codebook);
  for (int p = kBegin + 1; p < kTileWeights + kLookAhead; ++p) {
    search.Extend(targets[p % kTileWeights], {});
  }
  return search.BestPath()[kTileWeights - 1 - kBegin];
}

// What position p must add so that position 255 ends in `seam`.
Forced SeamBits(int p, int bits, uint16_t seam) {
  const int behind = (kTileWeights - 1 - p) * bits;
  if (behind >= 16) return {};
  const int known = std::min(bits, 16 - behind);
  const auto mask = static_cast<uint16_t>((1 << known) - 1);
  return {mask, static_cast<uint16_t>((seam >> behind) & mask)};
}

double Inverse(Fp16 scale) {
  const float value = ToFloat(scale);
  return value == 0.0f ? 0.0 : 1.0 / value;
}

}  // namespace

void PackStates(const uint16_t* states, int bits, uint16_t* units) {
  std::fill_n(units, kTile * bits, uint16_t{0});
  for (int p = 0; p < kTileWeights; ++p) {
    for (int i = 0; i < bits; ++i) {
      const int bit = p * bits + i;
      const int unit = 2 * (bit / 32) + (bit % 32 < 16 ? 1 : 0);
      units[unit] |= static_cast<uint16_t>(((states[p] >> (bits - 1 - i)) & 1) << (15 - bit % 16));
    }
  }
}

void PackTile(const float* targets, const PackOptions& options, uint16_t* units) {
  TP2_CHECK(options.bits >= 1 && options.bits <= kMaxBits);
  TP2_CHECK(options.beam_width >= 1 && options.beam_width <= kStates);
  TileTargets ordered;
  for (int p = 0; p < kTileWeights; ++p) ordered[p] = targets[TileRow(p) * kTile + TileColumn(p)];
  const uint16_t seam = ChooseSeam(ordered, options);
  BeamSearch search(options, kTileWeights);
  search.StartFrom(seam);
  for (int p = 0; p < kTileWeights; ++p) {
    search.Extend(ordered[p], SeamBits(p, options.bits, seam));
  }
  PackStates(search.BestPath().data(), options.bits, units);
}

MatrixView PackedMatrix::view() const {
  return {.k = k,
          .n = n,
          .bits = options.bits,
          .codebook = options.codebook,
          .trellis = trellis.data(),
          .tile_row_pitch = static_cast<ptrdiff_t>(n) * options.bits,
          .suh = suh.data(),
          .svh = svh.data()};
}

Scales ChooseScales(int k, int n, std::span<const double> dense, Codebook codebook, uint64_t seed) {
  TP2_CHECK(dense.size() == static_cast<size_t>(k) * static_cast<size_t>(n));
  const double deviation = codebook == Codebook::kMul1 ? kMul1Deviation : kHalfPairDeviation;
  Rng rng(seed);
  Scales scales;
  for (int row = 0; row < k; ++row) {
    double power = 0.0;
    for (int column = 0; column < n; ++column) {
      const double value = dense[static_cast<size_t>(row) * n + column];
      power += value * value;
    }
    // An empty row keeps a scale, so that its tiles can cancel to zero with its neighbours.
    const double magnitude = power == 0.0 ? 1.0 : std::sqrt(power / n) / deviation;
    const double sign = rng.Below(2) == 0 ? 1.0 : -1.0;
    scales.suh.push_back(ToFp16(static_cast<float>(sign * magnitude)));
  }
  for (int column = 0; column < n; ++column) {
    scales.svh.push_back(ToFp16(rng.Below(2) == 0 ? 1.0f : -1.0f));
  }
  return scales;
}

PackedMatrix PackMatrix(int k, int n, std::span<const double> dense, Scales scales,
                        const PackOptions& options, ThreadPool& pool) {
  TP2_CHECK(k > 0 && n > 0 && k % 128 == 0 && n % 128 == 0);
  TP2_CHECK(dense.size() == static_cast<size_t>(k) * static_cast<size_t>(n));
  TP2_CHECK(scales.suh.size() == static_cast<size_t>(k));
  TP2_CHECK(scales.svh.size() == static_cast<size_t>(n));
  PackedMatrix packed{.k = k,
                      .n = n,
                      .options = options,
                      .trellis = std::vector<uint16_t>(dense.size() / 16 * options.bits),
                      .suh = std::move(scales.suh),
                      .svh = std::move(scales.svh)};
  std::vector<double> grid(dense.begin(), dense.end());
  for (int row = 0; row < k; ++row) {
    for (int column = 0; column < n; ++column) {
      grid[static_cast<size_t>(row) * n + column] *=
          Inverse(packed.suh[row]) * Inverse(packed.svh[column]);
    }
  }
  HadamardBothSides(k, n, grid.data());
  const int tile_columns = n / kTile;
  pool.ParallelFor(static_cast<int64_t>(k / kTile) * tile_columns, [&](int64_t tile) {
    const size_t corner =
        static_cast<size_t>(tile / tile_columns) * kTile * n + tile % tile_columns * kTile;
    TileTargets targets;
    for (int i = 0; i < kTileWeights; ++i) {
      targets[i] =
          static_cast<float>(grid[corner + static_cast<size_t>(i / kTile) * n + i % kTile]);
    }
    PackTile(targets.data(), options, &packed.trellis[tile * kTile * options.bits]);
  });
  return packed;
}

}  // namespace tp2::exl3
