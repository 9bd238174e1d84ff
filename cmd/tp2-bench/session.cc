#include "cmd/tp2-bench/session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/common/interrupt.h"
#include "libcore/base/build_info.h"
#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"

namespace tp2::bench {
namespace {

// Nodes of the smallest and the largest draft, and of the smallest insert; JSON has every key.
std::string GraphText(const std::vector<GraphSize>& sizes) {
  if (sizes.empty()) return "";
  std::string text = absl::StrCat("# graphs    ", sizes.size(), " keys;");
  const GraphKey keys[] = {GraphKey::Draft(1, kBlockRows, false),
                           GraphKey::Draft(kMaxRequests, kBlockRows, true),
                           GraphKey::Insert(kInsertBuckets[0], true)};
  for (const GraphKey& key : keys) {
    for (const GraphSize& size : sizes) {
      if (size.key == key) absl::StrAppend(&text, " ", key.Name(), ": ", size.total(), " nodes;");
    }
  }
  text.back() = '\n';
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Start(const Flags& flags) {
  std::unique_ptr<Session> session(new Session(flags));
  if (!flags.json_path.empty() && flags.json_path != "-") {
    TP2_ASSIGN_OR_RETURN(session->file_,
                         AtomicFileWriter::Create(flags.json_path, IfExists::kRefuse));
  }
  TP2_ASSIGN_OR_RETURN(session->backend_, ResolveBackend(session->OptionsOf(flags.modes.front())));
  std::vector<CardFacts> cards;
  if (session->backend_ == "cuda") {
    const bool has_pair =
        std::find(flags.modes.begin(), flags.modes.end(), "pair") != flags.modes.end();
    TP2_ASSIGN_OR_RETURN(cards, SelectCards(flags.device_uuids, has_pair ? 2 : 1));
    TP2_ASSIGN_OR_RETURN(session->probe_, MakeCudaProbe(cards.front().uuid));
  } else {
    session->probe_ = MakeHostProbe();
  }
  const std::string nvml =
      flags.nvml_library.empty() ? telemetry::kDefaultNvmlLibrary : flags.nvml_library;
  session->conditions_ = std::make_unique<Conditions>(std::move(cards), nvml);
  TP2_ASSIGN_OR_RETURN(session->copy_gb_per_s_, session->probe_->CopyGbPerS());
  session->result_ = NewResult(flags.command_name, flags.argv);
  session->result_["backend"] = session->backend_;
  session->result_["copy_gb_per_s"] = session->copy_gb_per_s_;
  session->result_["measurement"] = {{"replays", flags.replays},
                                     {"warmup", flags.warmup},
                                     {"eager", flags.is_eager},
                                     {"margins", flags.wants_margins},
                                     {"cold_l2", flags.is_cold_l2},
                                     {"percentiles", "nearest rank"},
                                     {"windows", "full"},
                                     {"context", flags.context.length},
                                     {"slots", flags.context.slot_count},
                                     {"anchors", "prose"},
                                     {"max_mad_pct", flags.max_mad_pct}};
  cmd::WatchInterrupts();
  return session;
}

EngineOptions Session::OptionsOf(const std::string& mode) const {
  return {.model_dir = flags_.model_dir,
          .backend = backend_.empty() ? flags_.backend : backend_,
          .mode = mode,
          .max_positions = flags_.context.length > 0 ? kMaxModelLength : kDefaultModelLength,
          .thread_count = flags_.threads,
          .device_uuids = flags_.device_uuids,
          .uses_graphs = !flags_.is_eager,
          .kernels_path = flags_.kernels_path};
}

RunOptions Session::run_options() {
  RunOptions options = {.warmup = flags_.warmup, .replays = flags_.replays};
  if (flags_.is_cold_l2) options.before_each = [this] { return probe_->FlushCache(); };
  return options;
}

absl::Status Session::Print(const std::string& text) const {
  return flags_.json_path == "-" ? absl::OkStatus() : PrintResult(text);
}

absl::Status Session::PrintHeader(const StepEngine& engine) {
  const EngineInfo& info = engine.info();
  result_["model"] = ModelJson(info);
  const BuildInfo build = GetBuildInfo();
  std::string text =
      absl::StrFormat("# tp2-bench %s (%s)  %s  backend %s  schema %s  %s\n", build.version,
                      build.git_id, flags_.command_name, backend_, kSchema, telemetry::UtcNow());
  if (const std::optional<CardFacts>& card = probe_->card(); card.has_value()) {
    absl::StrAppendFormat(&text, "# card      %s  %s  sm_%d  %d SM  L2 %d MiB\n", card->name,
                          card->uuid, card->capability, card->multiprocessors,
                          card->l2_bytes >> 20);
  }
  absl::StrAppend(&text, "# state     ", conditions_->Line(), "\n");
  absl::StrAppendFormat(&text, "# memory    copy %.0f GB/s, read plus written\n", copy_gb_per_s_);
  absl::StrAppend(&text, "# model     ", ArchName(info.config.arch), ", ", info.config.stages,
                  " stages, vocab ", info.config.vocab, ", identity ",
                  Hex(info.identity_digest).substr(0, 8), ", numerics ", info.numerics_version,
                  "\n");
  absl::StrAppend(&text, GraphText(engine.GraphSizes()));
  if (const tuning::TableUse kernels = engine.kernel_table_use(); !kernels.digest.empty()) {
    absl::StrAppend(&text, "# kernels   ", tuning::Describe(kernels), "\n");
  }
  absl::StrAppend(&text, "# timing    ", flags_.replays, " calls after ", flags_.warmup, ", ",
                  flags_.is_eager ? "eager" : "graphs", flags_.is_cold_l2 ? ", cold L2" : "",
                  flags_.wants_margins ? ", with margins" : "",
                  "; nearest rank; full windows, prose anchors\n#\n");
  return Print(text);
}

void Session::AddGraphs(const StepEngine& engine) {
  Json& graphs = result_["graphs"];
  if (graphs.is_null()) graphs = Json::array();
  for (const GraphSize& size : engine.GraphSizes()) {
    graphs.push_back({{"mode", engine.info().mode},
                      {"key", size.key.Name()},
                      {"kernels", size.kernels},
                      {"copies", size.copies},
                      {"fills", size.fills},
                      {"events", size.events},
                      {"nodes", size.total()}});
  }
}

absl::StatusOr<std::unique_ptr<StepEngine>> Session::MakeEngine(const std::string& mode) {
  const std::vector<uint64_t> before = conditions_->MemoryUsedBytes();
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<StepEngine> engine, tp2::MakeEngine(OptionsOf(mode)));
  AddGraphs(*engine);
  result_["kernel_table"] = KernelTableJson(engine->kernel_table_use());
  const std::vector<uint64_t> after = conditions_->MemoryUsedBytes();
  Json& memory = result_["memory_used"];
  if (memory.is_null()) memory = Json::array();
  for (size_t rank = 0; rank < after.size() && rank < before.size(); ++rank) {
    memory.push_back({{"mode", mode},
                      {"rank", rank},
                      {"before_bytes", before[rank]},
                      {"with_engine_bytes", after[rank]}});
  }
  return engine;
}

std::string Session::AddCell(Json cell, const std::vector<int64_t>& primary_ns) {
  last_reading_ = conditions_->Read();
  const CellState state = JudgeCell(primary_ns, flags_.max_mad_pct, last_reading_);
  is_refused_ = is_refused_ || state != CellState::kOk;
  cell["state"] = CellStateName(state);
  cell["after"] = AfterJson(last_reading_);
  result_["cells"].push_back(std::move(cell));
  return CellStateName(state);
}

absl::StatusOr<int> Session::Finish() {
  const int signal = cmd::InterruptSignal();
  result_["complete"] = signal == 0;
  TP2_RETURN_IF_ERROR(Print(absl::StrCat("#\n# state     ", conditions_->Line(), "\n")));
  result_["conditions"] = conditions_->Finish();
  const std::string text = result_.dump(1) + "\n";
  if (flags_.json_path == "-") {
    TP2_RETURN_IF_ERROR(PrintResult(text));
  } else if (file_.has_value()) {
    TP2_RETURN_IF_ERROR(file_->Append(text));
    TP2_RETURN_IF_ERROR(file_->Commit());
    TP2_RETURN_IF_ERROR(Print(absl::StrCat("# wrote     ", flags_.json_path, "\n")));
  }
  if (signal != 0) return 128 + signal;
  return is_refused_ ? kExitMeasurement : kExitOk;
}

}  // namespace tp2::bench
