#include "cmd/dspark-selftest/measure.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cmd/dspark-selftest/fault_bench.h"
#include "cmd/dspark-selftest/latency.h"
#include "cmd/dspark-selftest/printer.h"
#include "cmd/dspark-selftest/stress.h"
#include "libcore/base/build_info.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"

namespace tp2::selftest {
namespace {

// Every row, also after one that failed, as long as the paying client can still be served.
absl::StatusOr<Json> RunFaults(FaultBench* bench, const Flags& flags, const Printer& printer,
                               bool* all_passed) {
  std::vector<Fault> faults = WireFaults(bench, flags.seed);
  for (Fault& fault : RequestFaults(bench)) faults.push_back(std::move(fault));
  for (Fault& fault : WaivedFaults()) faults.push_back(std::move(fault));
  Json rows = Json::array();
  for (const Fault& fault : faults) {
    if (fault.run == nullptr) {
      rows.push_back({{"name", fault.name}, {"waived", fault.figure}});
      TP2_RETURN_IF_ERROR(
          printer.Print(absl::StrFormat("WAIVED %-33s %s\n", fault.name, fault.figure)));
      continue;
    }
    const absl::StatusOr<double> figure = fault.run();
    *all_passed &= figure.ok();
    const std::string detail(figure.status().message());
    rows.push_back({{"name", fault.name}, {"passed", figure.ok()}, {"figure", fault.figure}});
    rows.back()["value"] = figure.ok() ? Json(*figure) : Json();
    rows.back()["detail"] = detail;
    TP2_RETURN_IF_ERROR(printer.Print(
        figure.ok() ? absl::StrFormat("PASS  %-34s %12.2f  %s\n", fault.name, *figure, fault.figure)
                    : absl::StrFormat("FAIL  %-34s %s\n", fault.name, detail)));
  }
  return rows;
}

absl::StatusOr<Json> RunLatency(Twin* twin, const Flags& flags, const Printer& printer) {
  const Hiccups before = MeasureHiccups(500);
  TP2_ASSIGN_OR_RETURN(const std::vector<LatencyLine> lines,
                       MeasureLatency(twin, flags.transport, flags.rounds));
  const Hiccups after = MeasureHiccups(500);
  TP2_RETURN_IF_ERROR(printer.Print(RenderLatency(lines)));
  Json json = {{"lines", Json::array()},
               {"hiccups_before", HiccupJson(before)},
               {"hiccups_after", HiccupJson(after)}};
  for (const LatencyLine& line : lines) json["lines"].push_back(LatencyJson(line));
  return json;
}

absl::StatusOr<Json> RunStress(FaultBench* bench, const Flags& flags) {
  const StressOptions options{.frames = flags.frames,
                              .connections = flags.connections,
                              .steps = flags.rounds,
                              .seconds = flags.seconds,
                              .worker_pid = flags.worker_pid,
                              .seed = flags.seed};
  switch (flags.command) {
    case Command::kFuzz:
      return RunFuzz(bench, options);
    case Command::kLoad:
      return RunLoad(bench, options);
    default:
      return RunSoak(bench, options);
  }
}

const char* CommandName(Command command) {
  switch (command) {
    case Command::kFaults:
      return "faults";
    case Command::kLatency:
      return "latency";
    case Command::kFuzz:
      return "fuzz";
    case Command::kLoad:
      return "load";
    default:
      return "soak";
  }
}

}  // namespace

absl::StatusOr<bool> RunMeasurement(const Flags& flags, const Connector& connect,
                                    StepEngine* engine) {
  const Printer printer(flags.json_path == "-");
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, connect());
  TP2_RETURN_IF_ERROR(SayHello(*client, engine->info()));
  Twin twin(client.get(), engine, flags.seed);
  FaultBench bench(connect, &twin);
  bool all_passed = true;
  Json figures;
  if (flags.command == Command::kLatency) {
    TP2_ASSIGN_OR_RETURN(figures, RunLatency(&twin, flags, printer));
  } else {
    TP2_RETURN_IF_ERROR(bench.Begin());
    if (flags.command == Command::kFaults) {
      TP2_ASSIGN_OR_RETURN(figures, RunFaults(&bench, flags, printer, &all_passed));
    } else {
      TP2_ASSIGN_OR_RETURN(figures, RunStress(&bench, flags));
      all_passed = figures.value("is_within_limit", true);
    }
    TP2_RETURN_IF_ERROR(bench.End());
  }
  const char* name = CommandName(flags.command);
  if (flags.command != Command::kFaults) {
    TP2_RETURN_IF_ERROR(printer.Print(figures.dump(1) + "\n"));
  }
  TP2_RETURN_IF_ERROR(
      printer.Print(absl::StrFormat("# verdict  %s  %s\n", all_passed ? "OK" : "FAILED", name)));
  if (flags.json_path.empty()) return all_passed;
  const BuildInfo build = GetBuildInfo();
  const Json json = {{"schema", std::string("dspark-selftest-") + name + "/1"},
                     {"tool", {{"version", build.version}, {"git", build.git_id}}},
                     {"server", flags.server},
                     {"seed", flags.seed},
                     {"identity", Hex(engine->info().identity_digest)},
                     {"backend", engine->info().backend},
                     {"verdict", all_passed ? "ok" : "failed"},
                     {name, figures}};
  const std::string text = json.dump(1) + "\n";
  if (flags.json_path == "-") TP2_RETURN_IF_ERROR(PrintResult(text));
  if (flags.json_path != "-") {
    TP2_RETURN_IF_ERROR(WriteFileAtomically(flags.json_path, text, IfExists::kRefuse));
  }
  return all_passed;
}

}  // namespace tp2::selftest
