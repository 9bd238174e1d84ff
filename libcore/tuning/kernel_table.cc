#include "libcore/tuning/kernel_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/build_info.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"
#include "libcore/math/numerics.h"
#include "libcore/tuning/launch_limits.h"
#include "libcore/tuning/table_fields.h"

namespace tp2::tuning {
namespace {

constexpr size_t kMaxTableBytes = 4 << 20;
constexpr size_t kMaxEntries = 4096;
constexpr double kMaxUs = 1e7;
constexpr double kMaxGapPct = 1e6;
constexpr int64_t kMaxWords = int64_t{1} << 24;
constexpr int64_t kMaxMhz = 100'000;

Json OrNull(const auto& value) { return value.has_value() ? Json(*value) : Json(nullptr); }

Json ChoiceJson(const Choice& choice) {
  if (const auto* product = std::get_if<ProductChoice>(&choice)) {
    return {{"splits", product->splits}};
  }
  const auto& reduce = std::get<ReduceChoice>(choice);
  return {{"protocol", ProtocolText(reduce.protocol)},
          {"blocks", reduce.blocks},
          {"threads", reduce.threads}};
}

Json EntryJson(const KernelKey& key, const KernelEntry& entry) {
  Json json = {{"choice", ChoiceJson(entry.choice)},
               {"us_p50", OrNull(entry.us_p50)},
               {"runner_up", nullptr},
               {"us_gap_pct", OrNull(entry.us_gap_pct)}};
  if (entry.runner_up.has_value()) json["runner_up"] = ChoiceJson(*entry.runner_up);
  if (const auto* product = std::get_if<ProductKey>(&key)) {
    json["op"] = "product";
    json["bits"] = product->bits;
    json["k"] = product->k;
    json["blocks"] = product->blocks;
    json["rows"] = product->rows;
  } else {
    json["op"] = "all_reduce";
    json["words"] = std::get<ReduceKey>(key).words;
  }
  return json;
}

Choice ReadChoice(TableFields fields, const KernelKey& key, absl::Status& status) {
  Choice choice;
  if (const auto* product = std::get_if<ProductKey>(&key)) {
    choice = ProductChoice{
        static_cast<int>(fields.Int("splits", LeastSplits(product->k), MostSplits(product->k)))};
  } else {
    ReduceChoice reduce;
    const bool is_ack = fields.OneOf("protocol", {"line", "ack"}) == "ack";
    reduce.protocol = is_ack ? PairProtocol::kAck : PairProtocol::kLine;
    reduce.blocks = static_cast<int>(fields.Int("blocks", 1, kMaxReduceBlocks));
    reduce.threads = static_cast<int>(fields.Multiple("threads", 32, kMaxReduceThreads));
    choice = reduce;
  }
  if (status.ok()) status = fields.End();
  return choice;
}

KernelKey ReadKey(TableFields& fields) {
  if (fields.OneOf("op", {"product", "all_reduce"}) == "all_reduce") {
    return ReduceKey{fields.Int("words", 1, kMaxWords)};
  }
  return ProductKey{static_cast<int>(fields.Int("bits", 1, 8)),
                    static_cast<int>(fields.Multiple("k", 128, 1 << 20)),
                    static_cast<int>(fields.Int("blocks", 1, 1 << 16)),
                    static_cast<int>(fields.Multiple("rows", kRowsPerBucket, kMaxPassRows))};
}

struct KeyedEntry {
  KernelKey key;
  KernelEntry entry;
};

absl::StatusOr<KeyedEntry> ReadEntry(const Json& json, const std::string& where) {
  TableFields fields(json, where);
  KeyedEntry keyed;
  keyed.key = ReadKey(fields);
  TP2_RETURN_IF_ERROR(fields.status());
  absl::Status status;
  keyed.entry.choice = ReadChoice(fields.Object("choice"), keyed.key, status);
  keyed.entry.us_p50 = fields.NumberOrNull("us_p50", 0, kMaxUs);
  if (!fields.IsNull("runner_up")) {
    keyed.entry.runner_up = ReadChoice(fields.Object("runner_up"), keyed.key, status);
  }
  keyed.entry.us_gap_pct = fields.NumberOrNull("us_gap_pct", -100, kMaxGapPct);
  TP2_RETURN_IF_ERROR(fields.End());
  TP2_RETURN_IF_ERROR(status);
  const bool is_whole = keyed.entry.runner_up.has_value() == keyed.entry.us_gap_pct.has_value() &&
                        (keyed.entry.us_p50.has_value() || !keyed.entry.runner_up.has_value());
  if (is_whole) return keyed;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "entry " + KeyName(keyed.key),
                    .expected = "us_p50 with runner_up, runner_up with us_gap_pct",
                    .got = "one without the other",
                    .where = where,
                    .next = kFixTable});
}

absl::Status ReadEntries(const Json& list, const std::string& where, KernelTable& table) {
  if (!list.is_array() || list.size() > kMaxEntries) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "field entries",
                      .expected = absl::StrCat("a list of at most ", kMaxEntries),
                      .got = list.is_array() ? absl::StrCat(list.size()) : ShortJson(list),
                      .where = where,
                      .next = kFixTable});
  }
  std::optional<PairProtocol> protocol;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = absl::StrCat(where, ", entry ", i);
    TP2_ASSIGN_OR_RETURN(KeyedEntry keyed, ReadEntry(list[i], place));
    const auto complain = [&](const std::string& expected, const std::string& got) {
      return MakeError(absl::StatusCode::kInvalidArgument, {.what = "entry " + KeyName(keyed.key),
                                                            .expected = expected,
                                                            .got = got,
                                                            .where = place,
                                                            .next = kFixTable});
    };
    if (const auto* reduce = std::get_if<ReduceChoice>(&keyed.entry.choice)) {
      if (!protocol.has_value()) protocol = reduce->protocol;
      if (reduce->protocol != *protocol) {
        return complain(absl::StrCat("the protocol of the others, ", ProtocolText(*protocol)),
                        ProtocolText(reduce->protocol));
      }
    }
    if (keyed.entry.us_p50.has_value() != table.is_measured()) {
      return complain(table.is_measured() ? "a time: the table names a driver"
                                          : "no time: the table names no driver",
                      table.is_measured() ? "none" : "one");
    }
    if (!table.entries.emplace(keyed.key, std::move(keyed.entry)).second) {
      return complain("each key once", "it twice");
    }
  }
  return absl::OkStatus();
}

absl::Status Refuse(const std::string& what, const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "kernel table of another " + what,
                    .expected = expected,
                    .got = got,
                    .next = "make one with tp2-tune run, or start without --kernels"});
}

std::string CardText(const CardKind& card) {
  return absl::StrCat(card.name, ", sm_", card.sm, ", ", card.multiprocessors, " SM");
}

std::string BuildText(const TableBuild& build) {
  return absl::StrCat("numerics ", build.numerics_version, ", launches ", build.launch_version);
}

}  // namespace

TableBuild ThisBuild() {
  const BuildInfo build = GetBuildInfo();
  return {build.version, build.git_id, kNumericsVersion, kLaunchVersion};
}

const KernelEntry* KernelTable::Find(const KernelKey& key) const {
  const auto found = entries.find(key);
  return found == entries.end() ? nullptr : &found->second;
}

std::string KernelTable::ToText() const {
  Json list = Json::array();
  for (const auto& [key, entry] : entries) list.push_back(EntryJson(key, entry));
  const Json json = {
      {"schema", kTableSchema},
      {"card", {{"name", card.name}, {"sm", card.sm}, {"multiprocessors", card.multiprocessors}}},
      {"driver", OrNull(driver)},
      {"clocks", {{"sm_mhz", OrNull(sm_clock_mhz)}, {"memory_mhz", OrNull(memory_clock_mhz)}}},
      {"build",
       {{"version", build.version},
        {"git", build.git},
        {"numerics_version", build.numerics_version},
        {"launch_version", build.launch_version}}},
      {"entries", list}};
  return json.dump(1) + "\n";
}

absl::StatusOr<KernelTable> ParseKernelTable(std::string_view text, const std::string& where) {
  TP2_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where, {.max_bytes = kMaxTableBytes}));
  TableFields fields(json, where);
  fields.OneOf("schema", {kTableSchema});
  TP2_RETURN_IF_ERROR(fields.status());
  KernelTable table;
  TableFields card = fields.Object("card");
  table.card = {card.Text("name"), static_cast<int>(card.Int("sm", 10, 999)),
                static_cast<int>(card.Int("multiprocessors", 1, 4096))};
  table.driver = fields.TextOrNull("driver");
  TableFields clocks = fields.Object("clocks");
  table.sm_clock_mhz = clocks.IntOrNull("sm_mhz", 1, kMaxMhz);
  table.memory_clock_mhz = clocks.IntOrNull("memory_mhz", 1, kMaxMhz);
  TableFields build = fields.Object("build");
  table.build = {build.Text("version"), build.Text("git"),
                 static_cast<uint64_t>(build.Int("numerics_version", 1, int64_t{1} << 62)),
                 static_cast<int>(build.Int("launch_version", 1, 1 << 30))};
  const Json entries = fields.Value("entries");
  TP2_RETURN_IF_ERROR(fields.End());
  for (TableFields* inner : {&card, &clocks, &build}) TP2_RETURN_IF_ERROR(inner->End());
  TP2_RETURN_IF_ERROR(ReadEntries(entries, where, table));
  return table;
}

absl::StatusOr<KernelTable> ReadKernelTable(const std::string& path) {
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTableBytes));
  return ParseKernelTable(text, path);
}

absl::Status CheckCard(const KernelTable& table, const CardKind& card) {
  if (table.card == card) return absl::OkStatus();
  return Refuse("card", CardText(card), CardText(table.card));
}

absl::Status CheckBuild(const KernelTable& table) {
  const TableBuild build = ThisBuild();
  if (table.build.numerics_version == build.numerics_version &&
      table.build.launch_version == build.launch_version) {
    return absl::OkStatus();
  }
  return Refuse("build", BuildText(build), BuildText(table.build));
}

absl::StatusOr<KernelTable> Merge(const KernelTable& base, const KernelTable& addition) {
  const bool is_same_build = base.build.numerics_version == addition.build.numerics_version &&
                             base.build.launch_version == addition.build.launch_version;
  if (base.card != addition.card || !is_same_build ||
      base.is_measured() != addition.is_measured()) {
    const auto text = [](const KernelTable& table) {
      return absl::StrCat(CardText(table.card), ", ", BuildText(table.build),
                          table.is_measured() ? ", measured" : ", derived");
    };
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "tables to merge",
                      .expected = text(addition),
                      .got = text(base),
                      .next = "write the new table to a file of its own"});
  }
  KernelTable merged = addition;
  merged.entries.insert(base.entries.begin(), base.entries.end());
  // Two protocols can only meet in the merged table; its parser says so.
  return ParseKernelTable(merged.ToText(), "the merged table");
}

}  // namespace tp2::tuning
