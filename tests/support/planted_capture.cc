#include "tests/support/planted_capture.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "libcore/base/digest.h"
#include "libcore/base/status_macros.h"
#include "libcore/capture/capture_writer.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/drafter/observer.h"
#include "libcore/math/gate.h"
#include "libcore/parity/near_tie.h"
#include "libcore/parity/workload.h"

namespace tp2 {
namespace {

// Everything of one block that a capture may hold, owned.
struct OwnedBlock {
  CaptureBlock block;
  std::vector<Bf16> main_x, taps;
  std::vector<float> confidence, margins, route_margins;
  std::vector<int32_t> experts;
  std::vector<int32_t> first_unchosen;  // [stages, rows]
  std::array<int32_t, kBlockRows> runner_up{};
  std::array<float, kBlockRows> margin{};
  bool is_stable = false;  // windows A and B draft the same after the same routing

  CaptureBlock View() const {
    CaptureBlock view = block;
    view.main_x = main_x;
    view.taps = taps;
    view.confidence = confidence;
    view.margins = margins;
    view.experts = experts;
    view.route_margins = route_margins;
    return view;
  }
};

struct OwnedRound {
  int n_out = 0;
  std::vector<OwnedBlock> blocks;
};

class Recorder final : public StepObserver {
 public:
  void OnTensor(const std::string& name, std::vector<int64_t> shape,
                std::span<const float> values) override {
    std::vector<float>& tensor = tensors[name];
    // Long inserts run in chunks, each of which shows its rows; everything else appears once.
    if (name != "main_x") tensor.clear();
    tensor.insert(tensor.end(), values.begin(), values.end());
  }
  std::map<std::string, std::vector<float>> tensors;
};

// Runs the workload on two of our drafters: one is fed taps, the other, which plays the engine, the
// main_x that the first one computed, rounded to bf16 as an engine would hand it over.
class Recording {
 public:
  Recording(StepEngine& taps_engine, StepEngine& main_x_engine, const DrafterWeights& weights,
            const PlantedOptions& options)
      : taps_engine_(taps_engine),
        main_x_engine_(main_x_engine),
        weights_(weights),
        config_(main_x_engine.info().config),
        drafts_from_taps_(!options.is_foreign),
        workload_(config_, main_x_engine.info().max_positions, options.seed),
        rng_(StreamOf(options.seed, "taps")) {}

  absl::StatusOr<OwnedRound> Next() {
    WorkloadRound planned = workload_.Next();
    OwnedRound round;
    round.n_out = planned.n_out;
    std::map<int, int64_t> bases;
    for (const WorkloadRound::Reset& reset : planned.resets) bases[reset.slot] = reset.base;
    for (StepEntry& entry : planned.entries) {
      OwnedBlock& block = round.blocks.emplace_back();
      block.taps = RandomRows(rng_, int64_t{entry.rows.row_count} * config_.tap_values());
      block.block.slot = entry.rows.slot;
      if (bases.contains(entry.rows.slot)) block.block.base = bases[entry.rows.slot];
      block.block.position = entry.rows.position;
      block.block.row_count = entry.rows.row_count;
      block.block.anchor = entry.anchor;
    }
    Recorder from_taps, from_main_x;
    TP2_ASSIGN_OR_RETURN(const StepOutputs other,
                         Run(taps_engine_, RowKind::kTaps, round, from_taps));
    SplitMainX(from_taps.tensors["main_x"], round);
    TP2_ASSIGN_OR_RETURN(const StepOutputs outputs,
                         Run(main_x_engine_, RowKind::kMainX, round, from_main_x));
    for (size_t b = 0; b < round.blocks.size(); ++b) {
      OwnedBlock comparison;
      Fill(outputs.entries[b], from_main_x, static_cast<int>(b),
           drafts_from_taps_ ? comparison : round.blocks[b]);
      Fill(other.entries[b], from_taps, static_cast<int>(b),
           drafts_from_taps_ ? round.blocks[b] : comparison);
      round.blocks[b].is_stable = comparison.block.drafts == round.blocks[b].block.drafts &&
                                  comparison.experts == round.blocks[b].experts;
    }
    return round;
  }

 private:
  absl::StatusOr<StepOutputs> Run(StepEngine& engine, RowKind kind, const OwnedRound& round,
                                  Recorder& recorder) {
    std::vector<StepEntry> entries;
    for (const OwnedBlock& block : round.blocks) {
      if (block.block.base) {
        TP2_RETURN_IF_ERROR(engine.ResetSlot(block.block.slot, *block.block.base));
      }
      StepEntry& entry = entries.emplace_back();
      entry.rows.slot = block.block.slot;
      entry.rows.position = block.block.position;
      entry.rows.kind = kind;
      entry.rows.row_count = block.block.row_count;
      entry.rows.values = kind == RowKind::kTaps ? block.taps : block.main_x;
      entry.anchor = block.block.anchor;
    }
    engine.SetObserver(&recorder);
    auto outputs = engine.Step({.entries = entries, .n_out = round.n_out});
    engine.SetObserver(nullptr);
    return outputs;
  }

  void SplitMainX(const std::vector<float>& main_x, OwnedRound& round) {
    size_t at = 0;
    for (OwnedBlock& block : round.blocks) {
      const size_t end = at + static_cast<size_t>(block.block.row_count) * config_.dim;
      for (; at < end; ++at) block.main_x.push_back(ToBf16(main_x[at]));
    }
  }

  void Fill(const EntryOutput& entry, Recorder& recorder, int b, OwnedBlock& block) {
    block.block.drafts = entry.tokens;
    block.confidence.assign(entry.confidence_logit.begin(), entry.confidence_logit.end());
    block.margins.assign(entry.margin.begin(), entry.margin.end());
    block.runner_up = entry.runner_up;
    block.margin = entry.margin;
    for (int stage = 0; stage < config_.stages; ++stage) {
      for (int row = 0; row < kBlockRows; ++row) {
        FillRouting(recorder, stage, b * kBlockRows + row, block);
      }
    }
  }

  void FillRouting(Recorder& recorder, int stage, int row, OwnedBlock& block) {
    const std::string prefix = absl::StrCat("s", stage, ".");
    const float* logits =
        recorder.tensors[prefix + "router_logits"].data() + int64_t{row} * config_.experts;
    const float* ids =
        recorder.tensors[prefix + "route_ids"].data() + int64_t{row} * config_.experts_per_token;
    const float* bias = weights_.stages[stage].gate_bias;
    const auto score = [&](int expert) { return GateAffinity(logits[expert]) + bias[expert]; };
    std::set<int> chosen;
    for (int i = 0; i < config_.experts_per_token; ++i) {
      chosen.insert(static_cast<int>(ids[i]));
      block.experts.push_back(static_cast<int32_t>(ids[i]));
    }
    int best = -1;
    for (int e = 0; e < config_.experts; ++e) {
      if (!chosen.contains(e) && (best < 0 || score(e) > score(best))) best = e;
    }
    block.first_unchosen.push_back(best);
    block.route_margins.push_back(score(block.experts.back()) - score(best));
  }

  StepEngine& taps_engine_;
  StepEngine& main_x_engine_;
  const DrafterWeights& weights_;
  const DrafterConfig& config_;
  bool drafts_from_taps_;
  Workload workload_;
  Rng rng_;
};

// Plants differences in blocks that nothing else was planted in.
class Planter {
 public:
  Planter(std::vector<OwnedRound>& rounds, const DrafterConfig& config)
      : rounds_(rounds), config_(config) {}

  // The engine takes the runner-up where our margin is smallest, at the last position: what it
  // would have drafted behind the other token is not known.
  std::vector<PlantedPlace> NearTies(int count) {
    std::vector<PlantedPlace> places;
    for (const Candidate& candidate : SortedByMargin()) {
      if (static_cast<int>(places.size()) == count) break;
      const bool is_last = candidate.position + 1 == rounds_[candidate.place.round].n_out;
      if (is_last && Take(candidate.place)) {
        Differ(candidate, At(candidate.place).runner_up[candidate.position]);
        places.push_back(candidate.place);
      }
    }
    return places;
  }

  // The engine chose the next expert where the scores nearly tie, and then another token.
  std::vector<PlantedPlace> RoutingFlips(int count) {
    std::vector<PlantedPlace> places;
    for (const Candidate& candidate : SortedByMargin(/*largest_first=*/true)) {
      if (static_cast<int>(places.size()) == count) break;
      OwnedBlock& block = At(candidate.place);
      for (size_t at = 0; at < block.route_margins.size(); ++at) {
        if (block.route_margins[at] > kRouteTie / 2 || !Take(candidate.place)) continue;
        block.experts[(at + 1) * config_.experts_per_token - 1] = block.first_unchosen[at];
        Differ(candidate, block.runner_up[candidate.position]);
        places.push_back(candidate.place);
        break;
      }
    }
    return places;
  }

  // Another token where nothing is close.
  std::vector<PlantedPlace> Mismatches(int count) {
    std::vector<PlantedPlace> places;
    for (const Candidate& candidate : SortedByMargin(/*largest_first=*/true)) {
      if (static_cast<int>(places.size()) == count) break;
      if (!Take(candidate.place)) continue;
      Differ(candidate, (At(candidate.place).runner_up[candidate.position] + 1) % config_.vocab);
      places.push_back(candidate.place);
    }
    return places;
  }

 private:
  struct Candidate {
    float margin;
    PlantedPlace place;
    int position;
  };

  OwnedBlock& At(const PlantedPlace& place) { return rounds_[place.round].blocks[place.block]; }
  bool Take(const PlantedPlace& place) { return taken_.insert(place).second; }
  void Differ(const Candidate& candidate, int32_t token) {
    At(candidate.place).block.drafts[candidate.position] = token;
  }

  std::vector<Candidate> SortedByMargin(bool largest_first = false) {
    std::vector<Candidate> candidates;
    for (size_t r = 0; r < rounds_.size(); ++r) {
      for (size_t b = 0; b < rounds_[r].blocks.size(); ++b) {
        for (int i = 0; i < rounds_[r].n_out; ++i) {
          candidates.push_back(
              {rounds_[r].blocks[b].margin[i], {static_cast<int64_t>(r), static_cast<int>(b)}, i});
        }
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [largest_first](const Candidate& a, const Candidate& b) {
                       return largest_first ? a.margin > b.margin : a.margin < b.margin;
                     });
    return candidates;
  }

  std::vector<OwnedRound>& rounds_;
  const DrafterConfig& config_;
  std::set<PlantedPlace> taken_;
};

// What another implementation's rounding would do to values that are only compared.
void AddNoise(std::vector<OwnedRound>& rounds, uint64_t seed) {
  constexpr float kNoise = 0.02f;
  Rng rng(StreamOf(seed, "noise"));
  const auto noise = [&rng] { return kNoise * (rng.Signed() + rng.Signed()); };
  for (OwnedRound& round : rounds) {
    for (OwnedBlock& block : round.blocks) {
      for (int i = 0; i < round.n_out; ++i) {
        block.margins[i] = std::max(0.0f, block.margins[i] + noise());
        block.confidence[i] += noise();
      }
    }
  }
}

absl::Status WriteAll(const std::vector<OwnedRound>& rounds, const CaptureInfo& info,
                      const std::string& dir) {
  TP2_ASSIGN_OR_RETURN(CaptureWriter writer, CaptureWriter::Create(dir, info, 1 << 19));
  for (const OwnedRound& round : rounds) {
    CaptureRound view;
    view.n_out = round.n_out;
    for (const OwnedBlock& block : round.blocks) view.blocks.push_back(block.View());
    TP2_RETURN_IF_ERROR(writer.Add(view));
  }
  return writer.Finish();
}

}  // namespace

absl::StatusOr<Planted> WritePlantedCapture(const std::string& model_dir,
                                            const std::string& capture_dir,
                                            const PlantedOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(model_dir));
  const EngineOptions engine_options = {.model_dir = model_dir, .backend = "cpu"};
  TP2_ASSIGN_OR_RETURN(const auto taps_engine, MakeEngine(engine_options));
  TP2_ASSIGN_OR_RETURN(const auto engine, MakeEngine(engine_options));
  Recording recording(*taps_engine, *engine, checkpoint->weights(), options);
  std::vector<OwnedRound> rounds;
  for (int i = 0; i < options.rounds; ++i) {
    TP2_ASSIGN_OR_RETURN(rounds.emplace_back(), recording.Next());
  }
  Planter planter(rounds, checkpoint->config());
  Planted planted;
  planted.mismatches = planter.Mismatches(options.has_mismatch ? 1 : 0);
  planted.routing_flips = planter.RoutingFlips(options.routing_flips);
  planted.near_ties = planter.NearTies(options.near_ties);
  CaptureInfo info = CaptureInfoOf(checkpoint->config());
  info.model_identity = Hex(checkpoint->IdentityDigest());
  info.engine = options.is_foreign ? "planted" : "dspark-tp2";
  if (!options.is_foreign) info.numerics_version = engine->info().numerics_version;
  info.has_main_x = options.is_foreign;
  info.has_taps = true;
  info.has_confidence = info.has_margins = info.has_routing = true;
  if (options.is_foreign) AddNoise(rounds, options.seed);
  TP2_RETURN_IF_ERROR(WriteAll(rounds, info, capture_dir));
  return planted;
}

}  // namespace tp2
