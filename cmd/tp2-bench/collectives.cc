#include "cmd/tp2-bench/collectives.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/build_info.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/conditions.h"
#include "libcore/collectives/cuda/chain_timing.h"
#include "libcore/device/select.h"
#include "libcore/report/output.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

using coll::Chain;
using coll::ChainKind;
using coll::ChainSpec;
using coll::ChainTimer;
using coll::CudaPair;
using coll::ProtocolKind;
using coll::ReplayTime;
using coll::cuda::Grid;

constexpr int kShort = 20, kLong = 100;
constexpr int kRowValues = 5120;
constexpr int64_t kLargestWords = int64_t{1} << 20;  // 4 MB
constexpr int kTokens = 64768;
// A B B A: each half of one side's replays runs once before and once after the other side's.
constexpr int kPasses = 2;

double NearestRank(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const auto rank =
      static_cast<size_t>(percent / 100 * static_cast<double>(values.size()) + 0.999999);
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

struct Case {
  const char* type = "float";
  ChainSpec spec;
  int64_t bytes = 0;
};

// Times of one chain pair on one side.
struct Series {
  std::vector<double> short_us, long_us, skew_us;
  int64_t wrong = 0;

  double PerOp() const {
    return (NearestRank(long_us, 50) - NearestRank(short_us, 50)) / (kLong - kShort);
  }
  double LongPerOp(double percent) const { return NearestRank(long_us, percent) / kLong; }
};

class Side {
 public:
  Side(std::string name, ChainTimer& timer) : name_(std::move(name)), timer_(&timer) {}

  absl::Status Build(const ChainSpec& spec) {
    TP2_ASSIGN_OR_RETURN(short_, timer_->Build(spec, kShort));
    TP2_ASSIGN_OR_RETURN(long_, timer_->Build(spec, kLong));
    return absl::OkStatus();
  }
  absl::Status Time(int warmup, int replays, Series& series) {
    for (int i = -warmup; i < replays; ++i) {
      TP2_ASSIGN_OR_RETURN(const ReplayTime few, timer_->Replay(*short_));
      TP2_ASSIGN_OR_RETURN(const ReplayTime many, timer_->Replay(*long_));
      if (i < 0) continue;
      series.short_us.push_back(few.slowest_us);
      series.long_us.push_back(many.slowest_us);
      series.skew_us.push_back(many.skew_us);
    }
    return absl::OkStatus();
  }
  absl::Status Verify(Series& series) {
    TP2_ASSIGN_OR_RETURN(series.wrong, timer_->Verify(*long_));
    return absl::OkStatus();
  }
  const std::string& name() const { return name_; }
  ChainTimer& timer() { return *timer_; }

 private:
  std::string name_;
  ChainTimer* timer_;
  std::optional<Chain> short_, long_;
};

std::string Us(double us) { return absl::StrFormat("%.2f", us); }

class Report {
 public:
  explicit Report(const CollectivesFlags& flags) : flags_(flags), cells_(Json::array()) {}

  void Add(const Case& one, const std::string& protocol, const Series& series,
           const std::optional<double>& nccl_us) {
    const double us = series.PerOp();
    const double gb_per_s = static_cast<double>(one.bytes) / us * 1e-3;
    const bool is_nccl = protocol == "nccl";
    table_.AddRow({absl::StrCat(one.bytes), absl::StrCat(one.spec.count), one.type, RedopOf(one),
                   protocol, is_nccl ? "-" : absl::StrCat(one.spec.grid.blocks),
                   is_nccl ? "-" : absl::StrCat(one.spec.grid.threads), Us(us),
                   absl::StrFormat("%.2f", gb_per_s), absl::StrFormat("%.2f", gb_per_s),
                   absl::StrCat(series.wrong), Us(series.LongPerOp(50)), Us(series.LongPerOp(95)),
                   Us(series.LongPerOp(99)), Us(series.LongPerOp(100)),
                   Us(NearestRank(series.skew_us, 50)),
                   nccl_us.has_value() ? absl::StrFormat("%.2f", *nccl_us / us) : "-"});
    cells_.push_back(
        {{"op", RedopOf(one)},
         {"type", one.type},
         {"bytes", one.bytes},
         {"count", one.spec.count},
         {"protocol", protocol},
         {"blocks", one.spec.grid.blocks},
         {"threads", one.spec.grid.threads},
         {"op_us", us},
         {"t20_p50_us", NearestRank(series.short_us, 50)},
         {"t100_p50_us", NearestRank(series.long_us, 50)},
         {"t100_p95_us", NearestRank(series.long_us, 95)},
         {"t100_p99_us", NearestRank(series.long_us, 99)},
         {"t100_max_us", NearestRank(series.long_us, 100)},
         {"skew_p50_us", NearestRank(series.skew_us, 50)},
         {"wrong", series.wrong},
         {"times_faster_than_nccl", nccl_us.has_value() ? Json(*nccl_us / us) : Json(nullptr)}});
    wrong_ += series.wrong;
  }

  absl::Status Print(const CudaPair& pair, const std::string& nccl_version,
                     Conditions& conditions) {
    const BuildInfo build = GetBuildInfo();
    std::string header =
        absl::StrCat("# tp2-bench collectives  ", build.version, " (", build.git_id, ")\n");
    for (int rank = 0; rank < 2; ++rank) {
      const device::DeviceInfo& card = pair.card(rank);
      absl::StrAppend(&header, "# rank ", rank, "   ", card.uuid, "  ", card.name, "  sm_",
                      card.capability, "\n");
    }
    absl::StrAppend(&header, "# state    ", conditions.Line(), "\n# nccl     ",
                    nccl_version.empty() ? "none" : nccl_version,
                    flags_.nccl_protocol.empty() ? "" : ", protocol ", flags_.nccl_protocol, "\n",
                    "# time     (t100 - t20) / 80 of dependent chains in a graph, p50 of ",
                    flags_.replays, " replays each; p50 .. max are t100 / 100, slower rank\n");
    const std::string footer =
        absl::StrCat("# Out of bounds values : ", wrong_, " ", wrong_ == 0 ? "OK" : "FAILED", "\n");
    if (flags_.json_path != "-") {
      TP2_RETURN_IF_ERROR(PrintResult(absl::StrCat(header, "#\n", table_.Render(), footer)));
    }
    if (!flags_.json_path.empty()) {
      const Json document = {
          {"schema", "tp2-collectives/2"},
          {"tool", {{"version", build.version}, {"git", build.git_id}}},
          {"conditions", conditions.Finish()},
          {"nccl", nccl_version.empty() ? Json(nullptr) : Json(nccl_version)},
          {"nccl_protocol",
           flags_.nccl_protocol.empty() ? Json(nullptr) : Json(flags_.nccl_protocol)},
          {"replays", flags_.replays},
          {"chain", {kShort, kLong}},
          {"cells", cells_}};
      const std::string text = document.dump(1) + "\n";
      TP2_RETURN_IF_ERROR(
          flags_.json_path == "-"
              ? PrintResult(text)
              : WriteFileAtomically(flags_.json_path, text,
                                    flags_.may_replace ? IfExists::kReplace : IfExists::kRefuse));
    }
    if (wrong_ == 0) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("collectives: expected exact results, got ", wrong_, " wrong elements"));
  }

 private:
  static const char* RedopOf(const Case& one) {
    switch (one.spec.kind) {
      case ChainKind::kBest:
        return "argmax";
      case ChainKind::kBestTwo:
        return "margin";
      case ChainKind::kClose:
        return "close";
      default:
        return "sum";
    }
  }

  const CollectivesFlags& flags_;
  Table table_{{{"size", "(B)"},
                {"count", "(n)"},
                {"type", ""},
                {"redop", ""},
                {"proto", ""},
                {"blocks", "(n)"},
                {"threads", "(n)"},
                {"time", "(us)"},
                {"algbw", "(GB/s)"},
                {"busbw", "(GB/s)"},
                {"#wrong", "(n)"},
                {"p50", "(us)"},
                {"p95", "(us)"},
                {"p99", "(us)"},
                {"max", "(us)"},
                {"skew", "(us)"},
                {"vs nccl", "(x)"}}};
  Json cells_;
  int64_t wrong_ = 0;
};

std::vector<Case> Cases(const CollectivesFlags& flags) {
  std::vector<Case> cases;
  const auto add = [&cases](const char* type, ChainKind kind, int64_t count, int64_t bytes) {
    cases.push_back({type, {kind, count, {}}, bytes});
  };
  for (const int rows : {5, 10, 15, 20}) {
    const int64_t count = int64_t{rows} * kRowValues;
    add("float", ChainKind::kSum, count, count * 4);
  }
  for (const int rows : {5, 20}) {
    const int64_t count = int64_t{rows} * kRowValues;
    add("bf16out", ChainKind::kRounded, count, count * 4);
  }
  for (const int requests : {1, 2, 3, 4}) add("best", ChainKind::kBest, requests, requests * 8);
  for (const int requests : {1, 2, 3, 4})
    add("best2", ChainKind::kBestTwo, requests, requests * 12);
  add("-", ChainKind::kClose, 1, 16);
  if (flags.is_quick) return cases;
  for (int64_t count = 4; count <= kLargestWords; count *= 2) {
    add("float", ChainKind::kSum, count, count * 4);
  }
  return cases;
}

std::vector<Grid> Grids(const CudaPair& pair, const CollectivesFlags& flags, const Case& one) {
  const Grid standard = pair.GridFor(one.spec.count);
  const bool is_reduce = one.spec.kind == ChainKind::kSum || one.spec.kind == ChainKind::kRounded;
  if (!is_reduce) return {{1, 32}};
  if (!flags.is_sweep) return {standard};
  std::vector<Grid> grids;
  const int64_t items = (one.spec.count + 2) / 3;
  for (const int threads : {64, 128, 256, 512, 1024}) {
    const int64_t blocks = std::clamp<int64_t>((items + threads - 1) / threads, 1, 132);
    grids.push_back({static_cast<int>(blocks), threads});
    if (blocks > 2) grids.push_back({static_cast<int>((blocks + 1) / 2), threads});
  }
  return grids;
}

absl::StatusOr<std::vector<device::DeviceInfo>> ChooseCards(const CollectivesFlags& flags) {
  std::vector<device::DeviceInfo> chosen;
  for (const std::string& uuid : flags.gpus) {
    TP2_ASSIGN_OR_RETURN(device::DeviceInfo card, device::SelectDevice(uuid));
    chosen.push_back(std::move(card));
  }
  if (chosen.empty()) {
    TP2_ASSIGN_OR_RETURN(chosen, device::ListDevices());
    if (chosen.size() > 2) chosen.resize(2);
  }
  if (flags.is_single_card && !chosen.empty()) chosen.assign(2, chosen.front());
  if (chosen.size() == 2) return chosen;
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "collectives",
                    .expected = "two cards",
                    .got = absl::StrCat(chosen.size()),
                    .next = "give --gpus A,B, or --single-card for both ranks on one"});
}

absl::StatusOr<std::unique_ptr<CudaPair>> MakePair(const std::vector<device::DeviceInfo>& cards,
                                                   ProtocolKind protocol) {
  coll::CudaPairOptions options;
  options.cards = cards;
  options.protocol = protocol;
  options.max_words = kLargestWords;
  options.tokens = {{0, kTokens}, {kTokens, 2 * kTokens}};
  return CudaPair::Create(options);
}

// One protocol's pair with its timer.
struct Contender {
  std::unique_ptr<CudaPair> pair;
  std::optional<ChainTimer> timer;
};

absl::StatusOr<Contender> MakeContender(const std::vector<device::DeviceInfo>& cards,
                                        ProtocolKind protocol) {
  Contender contender;
  TP2_ASSIGN_OR_RETURN(contender.pair, MakePair(cards, protocol));
  TP2_ASSIGN_OR_RETURN(ChainTimer timer, ChainTimer::Create(*contender.pair));
  contender.timer.emplace(std::move(timer));
  return contender;
}

// A case on one grid against NCCL in the order A B B A; NCCL is left out where it has no such
// operation.
absl::Status RunCase(const CollectivesFlags& flags, const Case& one, Contender& ours, bool has_nccl,
                     Report& report) {
  const bool is_compared = has_nccl && one.spec.kind == ChainKind::kSum;
  Side a(coll::ProtocolName(ours.pair->options().protocol), *ours.timer);
  Side b("nccl", *ours.timer);
  TP2_RETURN_IF_ERROR(a.Build(one.spec));
  ChainSpec other = one.spec;
  other.kind = ChainKind::kNccl;
  if (is_compared) TP2_RETURN_IF_ERROR(b.Build(other));
  Series a_series, b_series;
  const int replays = std::max(1, flags.replays / kPasses);
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == pass) {
        TP2_RETURN_IF_ERROR(a.Time(flags.warmup, replays, a_series));
      } else if (is_compared) {
        TP2_RETURN_IF_ERROR(b.Time(flags.warmup, replays, b_series));
      }
    }
  }
  TP2_RETURN_IF_ERROR(a.Verify(a_series));
  std::optional<double> nccl_us;
  if (is_compared) {
    TP2_RETURN_IF_ERROR(b.Verify(b_series));
    nccl_us = b_series.PerOp();
  }
  report.Add(one, a.name(), a_series, nccl_us);
  if (is_compared) report.Add(one, b.name(), b_series, std::nullopt);
  return absl::OkStatus();
}

std::vector<ProtocolKind> Protocols(const CollectivesFlags& flags) {
  if (const auto one = coll::FindProtocol(flags.protocol)) return {*one};
  return {ProtocolKind::kLine, ProtocolKind::kAck};
}

}  // namespace

absl::Status PrintCollectives(const CollectivesFlags& flags) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> cards, ChooseCards(flags));
  std::vector<std::string> uuids;
  for (const device::DeviceInfo& card : cards) uuids.push_back(card.uuid);
  TP2_ASSIGN_OR_RETURN(std::vector<CardFacts> facts,
                       SelectCards(uuids, static_cast<int>(uuids.size())));
  Conditions conditions(std::move(facts), flags.nvml_library.empty()
                                              ? telemetry::kDefaultNvmlLibrary
                                              : flags.nvml_library);
  std::optional<coll::NcclTeam> nccl;
  if (!flags.nccl.empty() && !flags.is_single_card) {
    TP2_ASSIGN_OR_RETURN(coll::NcclTeam team,
                         coll::NcclTeam::Create({cards[0].ordinal, cards[1].ordinal}, flags.nccl,
                                                flags.nccl_protocol));
    nccl.emplace(std::move(team));
  }
  Report report(flags);
  std::vector<Contender> contenders;
  for (const ProtocolKind protocol : Protocols(flags)) {
    TP2_ASSIGN_OR_RETURN(Contender contender, MakeContender(cards, protocol));
    if (nccl.has_value()) contender.timer->set_nccl(&*nccl);
    contenders.push_back(std::move(contender));
  }
  for (Case one : Cases(flags)) {
    for (Contender& contender : contenders) {
      // NCCL beside the first protocol's default grid only: once per size.
      bool has_nccl = nccl.has_value() && &contender == &contenders.front();
      for (const Grid grid : Grids(*contender.pair, flags, one)) {
        one.spec.grid = grid;
        TP2_RETURN_IF_ERROR(RunCase(flags, one, contender, has_nccl, report));
        has_nccl = false;
      }
    }
  }
  return report.Print(*contenders.front().pair, nccl.has_value() ? nccl->version() : "",
                      conditions);
}

}  // namespace tp2::bench
