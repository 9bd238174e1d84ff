#include "cmd/tp2-bench/memory.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/conditions.h"
#include "libcore/bench/result.h"
#include "libcore/checkpoint/shard_set.h"
#include "libcore/model/drafter_config.h"
#include "libcore/report/output.h"
#include "libcore/shard/memory_report.h"

namespace tp2::bench {
namespace {

constexpr int kTp = 2;

double MiB(int64_t byte_count) { return static_cast<double>(byte_count) / (1 << 20); }

std::string TableText(const Flags& flags, const DrafterConfig& config, const MemoryReport& report) {
  std::string text = absl::StrFormat(
      "# tp2-bench memory: MiB, %s, %d positions, %d cached rows, widths of the %s\n"
      "# %-26s  %9s  %9s  %9s\n",
      ArchName(config.arch), flags.max_positions, flags.cached_rows,
      flags.is_config_only ? "mission's pack" : "checkpoint", "item", "rank 0", "rank 1",
      "one card");
  const auto add = [&text](const std::string& name, int64_t rank0, int64_t rank1, int64_t one) {
    absl::StrAppendFormat(&text, "%-28s  %9.1f  %9.1f  %9.1f\n", name, MiB(rank0), MiB(rank1),
                          MiB(one));
  };
  for (const MemoryLine& line : report.lines) {
    add(line.name, line.rank_bytes[0], line.rank_bytes[1], line.one_card_bytes);
  }
  add("total", report.rank_total_bytes[0], report.rank_total_bytes[1], report.one_card_total_bytes);
  return text;
}

std::string JsonText(const Flags& flags, const DrafterConfig& config, const MemoryReport& report) {
  Json items = Json::array();
  for (const MemoryLine& line : report.lines) {
    items.push_back({{"item", line.name},
                     {"rank_bytes", line.rank_bytes},
                     {"one_card_bytes", line.one_card_bytes}});
  }
  Json document = NewResult(flags.command_name, flags.argv);
  document["complete"] = true;
  document["model"] = {{"arch", ArchName(config.arch)}};
  document["conditions"] = Conditions({}, "").Finish();
  document["memory"] = {{"widths", flags.is_config_only ? "mission" : "checkpoint"},
                        {"max_positions", flags.max_positions},
                        {"cached_rows", flags.cached_rows},
                        {"items", items},
                        {"rank_total_bytes", report.rank_total_bytes},
                        {"one_card_total_bytes", report.one_card_total_bytes}};
  return document.dump(1) + "\n";
}

absl::StatusOr<FormLookup> Forms(const Flags& flags, const DrafterConfig& config) {
  if (flags.is_config_only) {
    return FormLookup([&config](const TensorRule& rule) { return MissionForm(rule, config); });
  }
  TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
  return FormsOf(config, shards.tensors);
}

}  // namespace

absl::Status PrintMemory(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const DrafterConfig config, LoadDrafterConfig(flags.model_dir));
  TP2_ASSIGN_OR_RETURN(const FormLookup forms, Forms(flags, config));
  TP2_ASSIGN_OR_RETURN(
      const MemoryReport report,
      ReportMemory(config, kTp, forms,
                   {.max_positions = flags.max_positions, .cached_rows = flags.cached_rows}));
  if (flags.json_path.empty()) return PrintResult(TableText(flags, config, report));
  const std::string text = JsonText(flags, config, report);
  if (flags.json_path == "-") return PrintResult(text);
  return WriteFileAtomically(flags.json_path, text, IfExists::kRefuse);
}

}  // namespace tp2::bench
