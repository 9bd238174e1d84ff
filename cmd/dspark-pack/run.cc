#include "cmd/dspark-pack/run.h"

#include <algorithm>
#include <iostream>
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
    std::cout << "would write " << what << "\n";
    return absl::OkStatus();
  }
  TP2_ASSIGN_OR_RETURN(StagedFolder folder, StagedFolder::Create(flags.out_dir, if_exists));
  ThreadPool pool(flags.threads);
  TP2_RETURN_IF_ERROR(WriteSynthetic(*shape, flags.seed, folder.path(), pool));
  TP2_RETURN_IF_ERROR(folder.Commit());
  if (!flags.is_quiet) std::cout << "wrote " << what << "\n";
  return absl::OkStatus();
}

void PrintTable(const std::vector<InventoryLine>& lines) {
  size_t name_width = 6;
  for (const InventoryLine& line : lines) name_width = std::max(name_width, line.name.size());
  std::cout << absl::StrFormat("# %-*s  %5s  %-7s  %4s  %-8s  %-20s  %9s\n", name_width - 2,
                               "tensor", "count", "form", "bits", "codebook", "shape", "MiB");
  for (const InventoryLine& line : lines) {
    const std::string bits = line.bits == 0 ? "-" : absl::StrCat(line.bits);
    std::cout << absl::StrFormat("%-*s  %5d  %-7s  %4s  %-8s  %-20s  %9s\n", name_width, line.name,
                                 line.matrices, line.form, bits,
                                 line.codebook.empty() ? "-" : line.codebook,
                                 absl::StrJoin(line.shape, "x"), MiB(line.stored_bytes));
  }
  int64_t total_bytes = 0;
  std::cout << "#\n# " << absl::StrFormat("%-12s  %9s", "part", "MiB") << "\n";
  for (const PartTotal& total : PartTotals(lines)) {
    std::cout << absl::StrFormat("%-14s  %9s\n", total.part, MiB(total.stored_bytes));
    total_bytes += total.stored_bytes;
  }
  std::cout << absl::StrFormat("%-14s  %9s\n", "total", MiB(total_bytes));
}

absl::Status Inspect(const Flags& flags) {
  TP2_ASSIGN_OR_RETURN(const ShardSet shards, OpenShards(flags.model_dir));
  std::vector<InventoryLine> lines = BuildInventory(shards.tensors);
  if (!flags.wants_every_tensor && flags.json_path.empty()) lines = FoldInventory(lines);
  if (flags.json_path.empty()) {
    PrintTable(lines);
    return absl::OkStatus();
  }
  const std::string text = InventoryJson(lines).dump(1) + "\n";
  if (flags.json_path == "-") {
    std::cout << text;
    return absl::OkStatus();
  }
  return WriteFileAtomically(flags.json_path, text,
                             flags.may_replace ? IfExists::kReplace : IfExists::kRefuse);
}

int Failed(const absl::Status& status) {
  ReportStatus(kTool, status);
  return kExitCheckFailed;
}

// A folder that cannot be read as a checkpoint at all is bad input (2); one that can, but whose
// tensors are incomplete, misfitting or not finite, has failed the check (1).
int Verify(const Flags& flags) {
  const auto config = LoadDrafterConfig(flags.model_dir);
  if (!config.ok()) return ReportStatus(kTool, config.status());
  std::cout << absl::StrFormat("config    PASS  arch %s, %d stages\n", ArchName(config->arch),
                               config->stages);
  const auto shards = OpenShards(flags.model_dir);
  if (!shards.ok()) return ReportStatus(kTool, shards.status());
  std::cout << absl::StrFormat("files     PASS  %d files, %d drafter tensors\n",
                               shards->files.size(), shards->tensors.size());
  const auto checkpoint = Checkpoint::Open(flags.model_dir);
  if (!checkpoint.ok()) return Failed(checkpoint.status());
  std::cout << "tensors   PASS  complete, shapes and dtypes fit, values finite\n";
  const std::string identity = Hex((*checkpoint)->IdentityDigest());
  std::cout << "identity " << identity << "\n";
  if (!flags.expected_identity.empty() && flags.expected_identity != identity) {
    return Failed(MakeError(absl::StatusCode::kInvalidArgument,
                            {.what = "checkpoint identity",
                             .expected = flags.expected_identity,
                             .got = identity,
                             .where = flags.model_dir,
                             .next = "use the checkpoint that the identity was taken from"}));
  }
  std::cout << "ok\n";
  return kExitOk;
}

}  // namespace

int Run(const Flags& flags) {
  switch (flags.command) {
    case Command::kSynth:
      return ReportStatus(kTool, Synth(flags));
    case Command::kInspect:
      return ReportStatus(kTool, Inspect(flags));
    case Command::kVerify:
      return Verify(flags);
  }
  return kExitInternal;
}

}  // namespace tp2::pack
