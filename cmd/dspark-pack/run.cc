#include "cmd/dspark-pack/run.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/inventory.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/checkpoint/shard_set.h"
#include "libcore/checkpoint/staged_folder.h"
#include "libcore/checkpoint/synthetic.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"

namespace tp2::pack {
namespace {

constexpr char kTool[] = "dspark-pack";

std::string MiB(int64_t byte_count) {
  return absl::StrFormat("%.1f", static_cast<double>(byte_count) / (1 << 20));
}

absl::Status Synth(const Flags& flags) {
  const SyntheticShape* shape = FindSyntheticShape(flags.shape);
  if (shape == nullptr) return absl::InvalidArgumentError("no such shape");  // checked by the flag
  const std::string what =
      absl::StrCat(shape->name, ", seed ", flags.seed, ": ", SyntheticSpecs(*shape).size(),
                   " tensors, ", MiB(SyntheticBytes(*shape)), " MiB, in ", flags.out_dir);
  const IfExists if_exists = flags.may_replace ? IfExists::kReplace : IfExists::kRefuse;
  if (flags.is_dry_run) {
    TP2_RETURN_IF_ERROR(StagedFolder::Check(flags.out_dir, if_exists));
    return PrintResult(absl::StrCat("would write ", what, "\n"));
  }
  TP2_ASSIGN_OR_RETURN(StagedFolder folder, StagedFolder::Create(flags.out_dir, if_exists));
  ThreadPool pool(flags.threads);
  TP2_RETURN_IF_ERROR(WriteSynthetic(*shape, flags.seed, folder.path(), pool));
  TP2_RETURN_IF_ERROR(folder.Commit());
  if (flags.is_quiet) return absl::OkStatus();
  return PrintResult(absl::StrCat("wrote ", what, "\n"));
}

std::string TableText(const std::vector<InventoryLine>& lines) {
  int name_width = 6;
  for (const InventoryLine& line : lines) {
    name_width = std::max(name_width, static_cast<int>(line.name.size()));
  }
  std::string text = absl::StrFormat("# %-*s  %5s  %-7s  %4s  %-8s  %-20s  %9s\n", name_width - 2,
                                     "tensor", "count", "form", "bits", "codebook", "shape", "MiB");
  for (const InventoryLine& line : lines) {
    const std::string bits = line.bits == 0 ? "-" : absl::StrCat(line.bits);
    absl::StrAppendFormat(&text, "%-*s  %5d  %-7s  %4s  %-8s  %-20s  %9s\n", name_width, line.name,
                          line.matrices, line.form, bits,
                          line.codebook.empty() ? "-" : line.codebook,
                          absl::StrJoin(line.shape, "x"), MiB(line.stored_bytes));
  }
  int64_t total_bytes = 0;
  absl::StrAppendFormat(&text, "#\n# %-12s  %9s\n", "part", "MiB");
  for (const PartTotal& total : PartTotals(lines)) {
    absl::StrAppendFormat(&text, "%-14s  %9s\n", total.part, MiB(total.stored_bytes));
    total_bytes += total.stored_bytes;
  }
  absl::StrAppendFormat(&text, "%-14s  %9s\n", "total", MiB(total_bytes));
  return text;
}

absl::Status Inspect(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
  std::vector<InventoryLine> lines = BuildInventory(shards.tensors);
  if (!flags.wants_every_tensor && flags.json_path.empty()) lines = FoldInventory(lines);
  if (flags.json_path.empty()) {
    return PrintResult(TableText(lines));
  }
  const std::string text = InventoryJson(lines).dump(1) + "\n";
  if (flags.json_path == "-") return PrintResult(text);
  return WriteFileAtomically(flags.json_path, text,
                             flags.may_replace ? IfExists::kReplace : IfExists::kRefuse);
}

// Prints one line per check that passed. The error is that of the first check that did not;
// `has_failed` tells a failed check from input that is no checkpoint at all.
absl::Status Verify(const Flags& flags, bool* has_failed) {
  TP2_ASSIGN_OR_RETURN(const DrafterConfig config, LoadDrafterConfig(flags.model_dir));
  TP2_RETURN_IF_ERROR(PrintResult(absl::StrFormat("config    PASS  arch %s, %d stages\n",
                                                  ArchName(config.arch), config.stages)));
  {
    TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
    TP2_RETURN_IF_ERROR(
        PrintResult(absl::StrFormat("files     PASS  %d files, %d drafter tensors\n",
                                    shards.files.size(), shards.tensors.size())));
  }
  *has_failed = true;
  TP2_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(flags.model_dir));
  const std::string identity = Hex(checkpoint->IdentityDigest());
  TP2_RETURN_IF_ERROR(
      PrintResult(absl::StrCat("tensors   PASS  complete, shapes and dtypes fit, values finite\n",
                               "identity ", identity, "\n")));
  if (!flags.expected_identity.empty() && flags.expected_identity != identity) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "checkpoint identity",
                      .expected = flags.expected_identity,
                      .got = identity,
                      .where = flags.model_dir,
                      .next = "use the checkpoint that the identity was taken from"});
  }
  return PrintResult("ok\n");
}

}  // namespace

int Run(const Flags& flags) {
  switch (flags.command) {
    case Command::kSynth:
      return ReportStatus(kTool, Synth(flags));
    case Command::kInspect:
      return ReportStatus(kTool, Inspect(flags));
    case Command::kVerify: {
      bool has_failed = false;
      const absl::Status status = Verify(flags, &has_failed);
      const int code = ReportStatus(kTool, status);
      return code == kExitUsage && has_failed ? kExitCheckFailed : code;
    }
  }
  return kExitInternal;
}

}  // namespace tp2::pack
