#include "cmd/run-owned/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cmd/run-owned/card_locks.h"
#include "cmd/run-owned/monitor.h"
#include "cmd/run-owned/options.h"
#include "cmd/run-owned/outputs.h"
#include "cmd/run-owned/preflight.h"
#include "cmd/run-owned/summary.h"
#include "cmd/run-owned/verdict.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/config/env.h"
#include "libcore/config/settings.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"

namespace tp2::owned {
namespace {

constexpr char kTool[] = "run-owned";
constexpr int kFinishMs = 2000;

// A refusal: nothing was started.
int Refuse(int code, const absl::Status& status) {
  ReportStatus(kTool, status);
  return code;
}

// What the caller wanted CUDA to see, which the job will not see.
std::string CallersDevices() {
  constexpr config::SettingSpec kSpec[] = {{.name = "visible-devices",
                                            .kind = config::SettingKind::kText,
                                            .default_text = "",
                                            .environment = "CUDA_VISIBLE_DEVICES"}};
  const std::vector<config::GivenValue> given = config::ReadEnvironment(kSpec);
  return given.empty() ? "" : given.front().text;
}

std::string Join(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) absl::StrAppend(&text, text.empty() ? "" : separator, word);
  return text;
}

// The command as one line: words that hold more than plain characters are quoted as JSON.
std::string CommandText(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) {
    const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return c > ' ' && c <= '~' && c != '"' && c != '\\';
    });
    words.push_back(is_plain ? word
                             : Json(word).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return Join(words, " ");
}

// What a run would do and whether something is in its way; takes and starts nothing.
int DryRun(const Options& options, const Cards& cards) {
  std::string text = absl::StrCat("mode       ", std::string(ModeName(options.mode)), "\n");
  std::string busy;
  for (size_t rank = 0; rank < cards.cards.size(); ++rank) {
    const telemetry::CardInfo& card = cards.cards[rank];
    const std::string lock = LockPath(options.lock_dir, card.uuid);
    const std::string holder = LockHolder(lock);
    absl::StrAppend(&text, "rank ", rank, "     ", card.uuid, " ", card.name, " ", card.pci,
                    cards.helper.has_value() ? "\n" : " (not verified)\n", "lock       ", lock,
                    holder.empty() ? " (free)\n" : " (held by " + holder + ")\n");
    if (!holder.empty()) absl::StrAppend(&busy, busy.empty() ? "" : ", ", lock, " by ", holder);
  }
  absl::StrAppend(&text, "permit     ",
                  options.permit_path.empty()
                      ? "not needed"
                      : absl::StrCat(options.permit_path, " names ", options.permit_name),
                  "\n", "cap        TERM after ",
                  options.cap_ms - options.kill_margin_ms - options.grace_ms, " ms, KILL after ",
                  options.cap_ms - options.kill_margin_ms, " ms, nothing alive after ",
                  options.cap_ms, " ms\n", "log        ", options.log_path, "\n", "telemetry  ",
                  options.wants_telemetry ? options.telemetry_path : "none", "\n", "summary    ",
                  options.summary_path, "\n", "command    ", CommandText(options.command), "\n");
  const absl::Status printed = PrintResult(text);
  if (!printed.ok()) return Refuse(kExitOwnFailure, printed);
  if (busy.empty()) return 0;
  return Refuse(kExitOwnFailure,
                MakeError(absl::StatusCode::kUnavailable,
                          {.what = "locks", .expected = "free cards", .got = "held: " + busy}));
}

// Blocks what run-owned handles itself, for all threads that come later.
UniqueFd TakeOverSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, number);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Whether the run goes well past its checks of the cards; the reason if not.
absl::Status CheckCards(const Options& options, Monitor& monitor) {
  const bool has_sample = monitor.TakeFirstSample();
  if (!has_sample && options.requires_telemetry) {
    return absl::UnavailableError("telemetry: expected a first sample, got none");
  }
  if (!options.is_exclusive) return absl::OkStatus();
  const std::string foreign =
      has_sample ? monitor.ForeignProcesses() : "unknown: there is no telemetry";
  if (foreign.empty()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = "compute processes", .expected = "none with --exclusive", .got = foreign});
}

// A run that ended well for the job may still have failed.
void ApplyChecks(const Options& options, const std::string& log_failure, RunRecord& record) {
  if (record.end.verdict != Verdict::kChild || ExitCodeOf(record.end) != 0) return;
  for (const telemetry::CardTotals& card : record.totals.cards()) {
    const std::optional<uint64_t> errors = card.LinkErrors();
    if (options.max_nvlink_errors >= 0 && errors.has_value() &&
        *errors > static_cast<uint64_t>(options.max_nvlink_errors)) {
      record.end.verdict = Verdict::kNvlinkErrors;
    }
  }
  if (!log_failure.empty()) record.end.verdict = Verdict::kLogFailed;
}

// Writes the last words and returns the exit code.
int Close(const Options& options, const Cards& cards, Outputs& outputs, Monitor& monitor) {
  // So that the last line is the last. A reader that has stopped, or a daemon, may keep the outputs
  // open: half of the time is the last line's.
  outputs.AwaitJob(kFinishMs / 2);
  RunRecord& record = monitor.record();
  ApplyChecks(options, outputs.failure(), record);
  monitor.Event(absl::StrCat("verdict ", std::string(VerdictName(record.end.verdict)),
                             ", exit code ", ExitCodeOf(record.end)));
  outputs.Post(Sink::kLog, "# " + LastLine(options, record));
  outputs.Post(Sink::kStderr, LastLine(options, record));
  outputs.Finish(kFinishMs / 2);
  // The last lines may have been the ones that did not fit.
  const std::string log_failure = outputs.failure();
  ApplyChecks(options, log_failure, record);
  const Json summary = Summarize(options, cards, record, log_failure);
  const std::string text = summary.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const absl::Status written = WriteFileAtomically(
      options.summary_path, text, options.appends ? IfExists::kReplace : IfExists::kRefuse);
  if (!written.ok() || !log_failure.empty()) WriteAll(STDERR_FILENO, text);
  if (!written.ok()) {
    ReportStatus(kTool, written);
    ApplyChecks(options, "summary", record);
  }
  monitor.Goodbye();
  return ExitCodeOf(record.end);
}

struct JobPipes {
  UniqueFd out_read, out_write, err_read, err_write;
};

absl::StatusOr<JobPipes> MakePipes() {
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(ErrnoText());
  JobPipes pipes;
  pipes.out_read.Reset(out[0]);
  pipes.out_write.Reset(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(ErrnoText());
  pipes.err_read.Reset(err[0]);
  pipes.err_write.Reset(err[1]);
  return pipes;
}

// With all locks held and all files open.
absl::StatusOr<int> Supervise(const Options& options, Cards& cards, PermitWatch* permit,
                              Files files, const std::vector<std::string>& warnings) {
  const UniqueFd signal_fd = TakeOverSignals();
  TP2_ASSIGN_OR_RETURN(JobPipes pipes, MakePipes());
  const std::string devices = Join(cards.Uuids(), ",");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  TP2_ASSIGN_OR_RETURN(Guard guard, StartGuard({.command = options.command,
                                                .visible_devices = devices,
                                                .cap_ms = options.cap_ms,
                                                .grace_ms = options.grace_ms,
                                                .kill_margin_ms = options.kill_margin_ms,
                                                .give_up_ms = options.give_up_ms,
                                                .wants_cgroup = options.wants_cgroup,
                                                .out_fd = pipes.out_write.get(),
                                                .err_fd = pipes.err_write.get(),
                                                .log_fd = files.log.get()}));
  pipes.out_write.Reset();
  pipes.err_write.Reset();
  // No fork from here on: threads start.
  Outputs outputs(std::move(pipes.out_read), std::move(pipes.err_read), std::move(files.log),
                  std::move(files.telemetry));
  const bool shows_progress =
      options.progress == "always" || (options.progress == "auto" && ::isatty(STDERR_FILENO) == 1);
  Monitor monitor(options, &cards, permit, &guard, signal_fd.get(), &outputs, shows_progress);
  monitor.Event(absl::StrCat("run-owned ", std::string(ModeName(options.mode)), ": ",
                             CommandText(options.command)));
  monitor.Event("CUDA_VISIBLE_DEVICES=" + devices);
  const std::string callers = CallersDevices();
  if (!callers.empty() && callers != devices) {
    monitor.Event("CUDA_VISIBLE_DEVICES of the caller was " + callers);
  }
  for (const std::string& warning : warnings) monitor.Warn(warning);
  const absl::Status checked = CheckCards(options, monitor);
  if (!checked.ok()) {
    monitor.Event(absl::StrCat("refused: ", std::string(checked.message())));
    monitor.Goodbye();
    outputs.Finish(kFinishMs);
    return checked;
  }
  monitor.Run();
  return Close(options, cards, outputs, monitor);
}

int RunWith(const Options& options, bool is_dry_run) {
  absl::StatusOr<Cards> cards = FindCards(options);
  if (!cards.ok()) return Refuse(kExitOwnFailure, cards.status());
  if (const absl::Status status = CheckPermit(options); !status.ok()) {
    return Refuse(kExitPermit, status);
  }
  if (const absl::Status status = CheckFiles(options); !status.ok()) {
    return Refuse(kExitOwnFailure, status);
  }
  if (is_dry_run) return DryRun(options, *cards);
  absl::StatusOr<CardLocks> locks = CardLocks::Take(options.lock_dir, cards->Uuids());
  if (!locks.ok()) return Refuse(kExitOwnFailure, locks.status());
  std::vector<std::string> warnings = locks->warnings();
  if (!cards->warning.empty()) warnings.push_back(cards->warning);
  // Watched from before the second look, so that no change falls between look and watch.
  std::unique_ptr<PermitWatch> permit;
  if (!options.permit_path.empty()) {
    permit = std::make_unique<PermitWatch>(options.permit_path, options.permit_name);
    if (!permit->warning().empty()) warnings.push_back(permit->warning());
  }
  if (const absl::Status status = CheckPermit(options); !status.ok()) {
    return Refuse(kExitPermit, status);
  }
  absl::StatusOr<Files> files = OpenFiles(options);
  if (!files.ok()) return Refuse(kExitOwnFailure, files.status());
  const absl::StatusOr<int> code =
      Supervise(options, *cards, permit.get(), *std::move(files), warnings);
  return code.ok() ? *code : Refuse(kExitOwnFailure, code.status());
}

}  // namespace

int Run(const Flags& flags) {
  EnsureStandardStreams();
  ::signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<config::Settings> settings =
      config::Settings::Merge(OptionSpecs(flags.mode), flags.given);
  if (!settings.ok()) return Refuse(kExitOwnFailure, settings.status());
  if (flags.only_prints_config) {
    const absl::Status printed = PrintResult(settings->Describe());
    return printed.ok() ? 0 : Refuse(kExitOwnFailure, printed);
  }
  const absl::StatusOr<Options> options = ToOptions(*settings, flags.mode, flags.command);
  if (!options.ok()) return Refuse(kExitOwnFailure, options.status());
  return RunWith(*options, flags.is_dry_run);
}

}  // namespace tp2::owned
