#include "cmd/tp2-parity/captures.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"
#include "libcore/capture/capture_reader.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/compare.h"
#include "libcore/parity/compare_report.h"
#include "libcore/parity/mutation.h"
#include "libcore/parity/near_tie.h"
#include "libcore/report/output.h"
#include "libcore/report/progress.h"

namespace tp2::parity {
namespace {

constexpr char kReferenceMode[] = "one-card";

absl::StatusOr<std::unique_ptr<StepEngine>> OpenEngine(const Flags& flags, const std::string& mode,
                                                       const std::string& mutation) {
  if (!mutation.empty()) {
    TP2_ASSIGN_OR_RETURN(const Mutation fault, FindMutation(mutation));
    return MakeMutatedEngine(flags.model_dir, fault, flags.threads);
  }
  return MakeEngine({.model_dir = flags.model_dir,
                     .backend = flags.backend,
                     .mode = mode,
                     .max_positions = kMaxModelLength,
                     .thread_count = flags.threads,
                     .kernels_path = flags.kernels_path});
}

absl::StatusOr<std::vector<CaptureWindow>> WantedWindows(const Flags& flags,
                                                         const CaptureInfo& info) {
  std::vector<CaptureWindow> windows;
  if (info.has_main_x && flags.window != "B") windows.push_back(CaptureWindow::kMainX);
  if (info.has_taps && flags.window != "A") windows.push_back(CaptureWindow::kTaps);
  if (!windows.empty()) return windows;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "window",
                    .expected = "one that the capture has",
                    .got = flags.window,
                    .where = flags.capture_dir,
                    .next = absl::StrCat("tp2-parity inspect ", flags.capture_dir)});
}

// A capture, the engine it is held against, and that engine's weights.
struct Setup {
  std::unique_ptr<CaptureReader> capture;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<StepEngine> engine;
  std::unique_ptr<StepEngine> reference;  // null when the engine is the one-card model
};

absl::StatusOr<Setup> Open(const Flags& flags, bool wants_reference) {
  Setup setup;
  TP2_ASSIGN_OR_RETURN(CaptureReader capture, CaptureReader::Open(flags.capture_dir));
  setup.capture = std::make_unique<CaptureReader>(std::move(capture));
  TP2_ASSIGN_OR_RETURN(setup.checkpoint, Checkpoint::Open(flags.model_dir));
  TP2_RETURN_IF_ERROR(setup.capture->CheckModel(Hex(setup.checkpoint->IdentityDigest()),
                                                setup.checkpoint->config()));
  TP2_ASSIGN_OR_RETURN(setup.engine, OpenEngine(flags, flags.mode, flags.mutation));
  if (wants_reference && flags.mode != kReferenceMode && flags.mutation.empty()) {
    TP2_ASSIGN_OR_RETURN(setup.reference, OpenEngine(flags, kReferenceMode, ""));
  }
  return setup;
}

absl::Status Write(const std::string& path, const std::string& text, bool may_replace) {
  if (path == "-") return PrintResult(text);
  return WriteFileAtomically(path, text, may_replace ? IfExists::kReplace : IfExists::kRefuse);
}

absl::Status WriteReports(const Flags& flags, const CompareReport& report) {
  if (flags.json_path != "-") TP2_RETURN_IF_ERROR(PrintResult(CompareText(report)));
  if (!flags.json_path.empty()) {
    TP2_RETURN_IF_ERROR(
        Write(flags.json_path, CompareJson(report).dump(1) + "\n", flags.may_replace));
  }
  if (flags.junit_path.empty()) return absl::OkStatus();
  return Write(flags.junit_path, CompareJUnit(report), flags.may_replace);
}

std::string ExpertsText(const CaptureInfo& info, const CaptureBlock& block,
                        const BlockDetail& detail) {
  std::string text;
  const int top_k = info.experts_per_token;
  for (int at = 0; at < info.stages * kBlockRows; ++at) {
    std::string ours, theirs;
    for (int i = 0; i < top_k; ++i) {
      absl::StrAppend(&ours, " ", detail.experts[at * top_k + i]);
      absl::StrAppend(&theirs, " ", block.experts[at * top_k + i]);
    }
    if (ours == theirs) continue;
    absl::StrAppendFormat(&text, "experts of stage %d row %d:%s, engine%s, margin %.4g\n",
                          at / kBlockRows, at % kBlockRows, ours, theirs, block.route_margins[at]);
  }
  return text;
}

std::string BlockText(const CaptureInfo& info, const CaptureRound& round, const CaptureBlock& block,
                      const BlockDetail& detail) {
  std::string text = absl::StrFormat(
      "# slot %d, anchor %d at position %d, %d new rows, n_out %d\n"
      "# %8s  %8s  %8s  %12s  %12s  %10s  %10s\n",
      block.slot, block.anchor, block.position + block.row_count, block.row_count, round.n_out,
      "position", "ours", "engine", "our logit", "of engine's", "bf16 steps", "eng margin");
  for (int i = 0; i < round.n_out; ++i) {
    const PositionDetail& position = detail.positions[i];
    const double gap = position.token_logit - position.engine_token_logit;
    absl::StrAppendFormat(&text, "%10d  %8d  %8d  %12.5f  %12.5f  %10.2f  %10s%s\n", i,
                          position.token, block.drafts[i], position.token_logit,
                          position.engine_token_logit,
                          gap / Bf16Step(position.token_logit, position.engine_token_logit),
                          block.margins.empty() ? "-" : absl::StrFormat("%.5f", block.margins[i]),
                          position.token == block.drafts[i] ? "" : "  differs");
    if (position.token != block.drafts[i]) break;  // what follows was drafted after another token
  }
  if (!block.experts.empty() && !detail.experts.empty()) {
    absl::StrAppend(&text, ExpertsText(info, block, detail));
  }
  return text;
}

}  // namespace

absl::StatusOr<bool> CaptureIsExplained(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const Setup setup, Open(flags, true));
  const CaptureInfo& info = setup.capture->info();
  TP2_ASSIGN_OR_RETURN(const std::vector<CaptureWindow> windows, WantedWindows(flags, info));
  CompareReport report = {flags.mode,           flags.mutation, flags.capture_dir,
                          setup.engine->info(), info,           {}};
  for (const CaptureWindow window : windows) {
    Progress progress(absl::StrCat("window ", CaptureWindowName(window)));
    TP2_ASSIGN_OR_RETURN(
        report.windows.emplace_back(),
        Compare(*setup.engine, setup.reference.get(), *setup.capture, setup.checkpoint->weights(),
                {.window = window,
                 .max_rounds = flags.max_rounds,
                 .progress = [&progress](int64_t done, int64_t total) {
                   progress.Update(done, total, absl::StrCat(done, "/", total, " rounds"));
                 }}));
  }
  TP2_RETURN_IF_ERROR(WriteReports(flags, report));
  return report.has_passed();
}

absl::StatusOr<bool> InspectCapture(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const CaptureReader capture, CaptureReader::Open(flags.capture_dir));
  const CaptureInfo& info = capture.info();
  const std::string numerics =
      info.numerics_version ? absl::StrCat(*info.numerics_version) : "not ours";
  TP2_RETURN_IF_ERROR(PrintResult(absl::StrCat(
      "schema     ", kCaptureSchema, "\n",                        //
      "engine     ", info.engine, ", numerics ", numerics, "\n",  //
      "model      ", info.model_identity, "\n",                   //
      "sizes      dim ", info.dim, ", taps ", info.tap_values, ", vocab ", info.vocab, ", stages ",
      info.stages, ", window ", info.window, "\n",                                 //
      "windows    ", info.has_main_x ? "A " : "", info.has_taps ? "B" : "", "\n",  //
      "optional   ", info.has_logits ? "logits " : "", info.has_confidence ? "confidence " : "",
      info.has_margins ? "margins " : "", info.has_routing ? "routing" : "", "\n",  //
      "rounds     ", capture.round_count(), ", blocks ", capture.block_count(), ", rows ",
      capture.row_count(), ", shards ", capture.shard_count(), "\n",  //
      "longest    ", capture.max_length(), " positions\nok\n")));
  return true;
}

absl::StatusOr<bool> ExplainBlock(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const Setup setup, Open(flags, false));
  const CaptureReader& capture = *setup.capture;
  TP2_ASSIGN_OR_RETURN(const std::vector<CaptureWindow> windows,
                       WantedWindows(flags, capture.info()));
  if (flags.round >= capture.round_count() ||
      flags.block >= static_cast<int>(capture.Round(flags.round).blocks.size())) {
    return MakeError(absl::StatusCode::kOutOfRange,
                     {.what = "block",
                      .expected = absl::StrCat("one of ", capture.round_count(), " rounds"),
                      .got = absl::StrCat("round ", flags.round, " block ", flags.block),
                      .where = flags.capture_dir,
                      .next = ""});
  }
  Progress progress("replay");
  for (const CaptureWindow window : windows) {
    Replayer replayer(*setup.engine, capture, window, setup.checkpoint->weights());
    for (int64_t round = 0; round <= flags.round; ++round) {
      TP2_RETURN_IF_ERROR(replayer.Step(capture.Round(round), false).status());
      progress.Update(round, flags.round + 1);
    }
    const CaptureRound round = capture.Round(flags.round);
    TP2_ASSIGN_OR_RETURN(const BlockDetail detail, replayer.Look(round, flags.block));
    TP2_RETURN_IF_ERROR(PrintResult(
        absl::StrCat("# window ", CaptureWindowName(window), "\n",
                     BlockText(capture.info(), round, round.blocks[flags.block], detail))));
  }
  return true;
}

}  // namespace tp2::parity
