#include "libcore/shard/shard_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "libcore/exl3/decode.h"
#include "libcore/shard/layout.h"
#include "libcore/shard/rank_weights.h"
#include "libcore/shard/weight_pairs.h"

namespace tp2 {
namespace {

constexpr int kBlock = kHadamardBlock;
constexpr int kBlockWeights = kBlock * kBlock;
constexpr int kBlocksPerJob = 64;

// Up to kBlocksPerJob neighbouring blocks of one part, and where they lie in the whole.
struct Job {
  const exl3::MatrixView* whole = nullptr;
  const exl3::MatrixView* part = nullptr;
  const std::string* name = nullptr;
  int rank = 0;
  int k_begin = 0, n_begin = 0, n_end = 0;  // in the part
  int k_offset = 0, n_offset = 0;           // of the part in the whole
};

void AddJobs(std::vector<Job>& jobs, const Job& part) {
  for (int k = 0; k < part.part->k; k += kBlock) {
    for (int n = 0; n < part.part->n; n += kBlock * kBlocksPerJob) {
      Job job = part;
      job.k_begin = k;
      job.n_begin = n;
      job.n_end = std::min(part.part->n, n + kBlock * kBlocksPerJob);
      jobs.push_back(job);
    }
  }
}

bool BlocksAreEqual(const Job& job) {
  std::array<double, kBlockWeights> mine, theirs;
  for (int n = job.n_begin; n < job.n_end; n += kBlock) {
    DecodeBlock(*job.part, job.k_begin, n, mine.data());
    DecodeBlock(*job.whole, job.k_offset + job.k_begin, job.n_offset + n, theirs.data());
    if (std::memcmp(mine.data(), theirs.data(), sizeof(mine)) != 0) return false;
  }
  return true;
}

class Checker {
 public:
  Checker(const DrafterConfig& config, const DrafterWeights& whole)
      : config_(config), whole_(whole) {
    for (TensorRule& rule : ExpectedTensors(config)) rules_[rule.name] = rule;
  }

  void AddRank(const RankShard& rank) {
    // Jobs point into the pairs, whose addresses stay.
    pairs_.push_back(std::make_unique<std::vector<MatrixPair>>(
        MatrixPairs(config_, whole_, rank.weights, rank.plan)));
    for (const MatrixPair& pair : *pairs_.back()) AddMatrix(pair, rank.plan);
    for (const PlainPair& pair : PlainPairs(config_, whole_, rank.weights, rank.plan)) {
      CheckPlain(pair, rank.plan);
    }
  }

  ShardCheck Run(ThreadPool& pool, const ShardProgress& progress) {
    int64_t total = 0;
    for (const Job& job : jobs_) total += Weights(job);
    std::mutex mutex;
    pool.ParallelFor(static_cast<int64_t>(jobs_.size()), [&](int64_t index) {
      const Job& job = jobs_[index];
      const bool is_equal = BlocksAreEqual(job);
      const std::lock_guard lock(mutex);
      if (!is_equal) Differs(*job.name, job.rank, "decoded weights differ");
      result_.weights += Weights(job);
      if (progress) progress(result_.weights, total);
    });
    result_.differences.assign(differences_.begin(), differences_.end());
    return result_;
  }

 private:
  static int64_t Weights(const Job& job) { return int64_t{kBlock} * (job.n_end - job.n_begin); }

  void Differs(const std::string& name, int rank, const std::string& how) {
    differences_.insert(absl::StrCat(name, ", rank ", rank, ": ", how));
  }

  void AddMatrix(const MatrixPair& pair, const ShardPlan& plan) {
    const LayoutRow& row = LayoutOf(pair.name);
    Span held = HeldSpan(row, rules_.at(pair.name), config_, plan);
    if (row.owner == Owner::kGroups) {
      // A stored slice is one group; it must lie inside the rank's groups and is compared whole.
      const int begin = pair.outputs_before;
      if (begin < held.begin || begin + pair.whole.n > held.end) {
        return Differs(pair.name, plan.rank, "a slice of another rank");
      }
      held = {0, pair.whole.n};
    }
    const bool cuts_inputs = row.axis == CutAxis::kInputs;
    int begin = held.begin;
    for (const exl3::MatrixView& part : pair.parts) {
      Job job{.whole = &pair.whole, .part = &part, .name = &pair.name, .rank = plan.rank};
      (cuts_inputs ? job.k_offset : job.n_offset) = begin;
      begin += cuts_inputs ? part.k : part.n;
      const bool spans_other_axis = cuts_inputs ? part.n == pair.whole.n : part.k == pair.whole.k;
      if (!spans_other_axis || begin > held.end) {
        return Differs(pair.name, plan.rank, "extends beyond its part");
      }
      AddJobs(jobs_, job);
    }
    if (begin != held.end) return Differs(pair.name, plan.rank, "does not cover its part");
    ++result_.matrices;
  }

  void CheckPlain(const PlainPair& pair, const ShardPlan& plan) {
    const TensorRule& rule = rules_.at(pair.name);
    const Span held = HeldSpan(LayoutOf(pair.name), rule, config_, plan);
    const size_t line_bytes =
        pair.whole.size() / static_cast<size_t>(rule.outputs() / pair.rows_per_line);
    const size_t begin = held.begin / pair.rows_per_line * line_bytes;
    const size_t byte_count = held.count() / pair.rows_per_line * line_bytes;
    if (pair.part.size() != byte_count || begin + byte_count > pair.whole.size() ||
        std::memcmp(pair.part.data(), pair.whole.data() + begin, byte_count) != 0) {
      return Differs(pair.name, plan.rank, "bytes differ");
    }
    ++result_.plain_tensors;
    result_.bytes += static_cast<int64_t>(byte_count);
  }

  const DrafterConfig& config_;
  const DrafterWeights& whole_;
  std::map<std::string, TensorRule> rules_;
  std::vector<std::unique_ptr<std::vector<MatrixPair>>> pairs_;
  std::vector<Job> jobs_;
  std::set<std::string> differences_;
  ShardCheck result_;
};

}  // namespace

void DecodeBlock(const exl3::MatrixView& matrix, int k_begin, int n_begin, double* out) {
  const float* values = exl3::ValueTable(matrix.codebook);
  std::array<uint16_t, exl3::kTileWeights> states;
  for (int i = 0; i < kBlock / exl3::kTile; ++i) {
    const uint16_t* row = matrix.trellis + (k_begin / exl3::kTile + i) * matrix.tile_row_pitch +
                          static_cast<ptrdiff_t>(n_begin / exl3::kTile) * matrix.tile_units();
    for (int j = 0; j < kBlock / exl3::kTile; ++j) {
      exl3::TileStates(row + j * matrix.tile_units(), matrix.bits, states.data());
      double* corner = out + i * exl3::kTile * kBlock + j * exl3::kTile;
      for (int p = 0; p < exl3::kTileWeights; ++p) {
        corner[exl3::TileRow(p) * kBlock + exl3::TileColumn(p)] = values[states[p]];
      }
    }
  }
  exl3::HadamardBothSides(kBlock, kBlock, out);
  for (int i = 0; i < kBlock; ++i) {
    const double suh = ToFloat(matrix.suh[k_begin + i]);
    for (int j = 0; j < kBlock; ++j) out[i * kBlock + j] *= suh * ToFloat(matrix.svh[n_begin + j]);
  }
}

ShardCheck CheckShards(const DrafterConfig& config, const DrafterWeights& whole,
                       const std::vector<RankShard>& ranks, ThreadPool& pool,
                       const ShardProgress& progress) {
  Checker checker(config, whole);
  for (const RankShard& rank : ranks) checker.AddRank(rank);
  return checker.Run(pool, progress);
}

}  // namespace tp2
