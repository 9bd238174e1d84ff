#include "libcore/capture/capture_index.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

constexpr int64_t kMaxRounds = int64_t{1} << 32;
constexpr size_t kMaxShards = 100000;
constexpr size_t kIdentityDigits = 64;
constexpr size_t kMaxTextBytes = 1024;
constexpr char kFixWriter[] = "fix the writer; cmd/tp2-parity/README.md has the format";

// Reads fields one after the other and keeps the first complaint.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  void Refuse(const std::string& field, const std::string& expected, const std::string& got,
              const std::string& next = kFixWriter) {
    if (!status_.ok()) return;
    status_ = MakeError(absl::StatusCode::kInvalidArgument, {.what = absl::StrCat("field ", field),
                                                             .expected = expected,
                                                             .got = got,
                                                             .where = where_,
                                                             .next = next});
  }

  // nullptr after a complaint.
  const Json* Find(const char* field) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(field);
    if (found != json_.end()) return &*found;
    Refuse(field, "a value", "nothing");
    return nullptr;
  }

  int64_t Int(const char* field, int64_t low, int64_t high) {
    const Json* value = Find(field);
    if (value == nullptr) return low;
    const std::string range = absl::StrCat("an integer from ", low, " to ", high);
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() &&
         value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) {
      Refuse(field, range, "something else");
      return low;
    }
    const auto number = value->get<int64_t>();
    if (number < low || number > high) Refuse(field, range, absl::StrCat(number));
    return number;
  }

  std::string Text(const char* field) {
    const Json* value = Find(field);
    if (value == nullptr) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kMaxTextBytes) {
      Refuse(field, "a short text", "something else");
      return "";
    }
    return value->get<std::string>();
  }

  // A list of distinct texts.
  std::vector<std::string> Texts(const char* field, size_t max_count) {
    const Json* value = Find(field);
    if (value == nullptr) return {};
    std::vector<std::string> texts;
    if (value->is_array() && value->size() <= max_count) {
      for (const Json& item : *value) {
        if (item.is_string() && item.get_ref<const std::string&>().size() <= kMaxTextBytes) {
          texts.push_back(item.get<std::string>());
        }
      }
    }
    const std::set<std::string> distinct(texts.begin(), texts.end());
    if (!value->is_array() || distinct.size() != value->size()) {
      Refuse(field, "a list of distinct names", "something else");
      return {};
    }
    return texts;
  }

  const absl::Status& status() const { return status_; }

 private:
  const Json& json_;
  std::string where_;
  absl::Status status_;
};

bool IsLowerHex(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A file of the folder itself: no path may lead outside.
bool IsPlainFileName(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.front() != '.';
}

void ReadWindows(Fields& fields, CaptureInfo& info) {
  for (const std::string& window : fields.Texts("windows", 2)) {
    if (window != "A" && window != "B") fields.Refuse("windows", "A and B", window);
    (window == "A" ? info.has_main_x : info.has_taps) = true;
  }
  if (!info.has_main_x && !info.has_taps) fields.Refuse("windows", "A, B or both", "none");
}

void ReadOptional(Fields& fields, CaptureInfo& info) {
  for (const std::string& name : fields.Texts("optional", 4)) {
    if (name == "logits") {
      info.has_logits = true;
    } else if (name == "confidence") {
      info.has_confidence = true;
    } else if (name == "margins") {
      info.has_margins = true;
    } else if (name == "routing") {
      info.has_routing = true;
    } else {
      fields.Refuse("optional", "logits, confidence, margins and routing", name);
    }
  }
}

void ReadSizes(Fields& fields, CaptureInfo& info) {
  info.dim = static_cast<int>(fields.Int("dim", 128, 1 << 20));
  info.tap_values = static_cast<int>(fields.Int("tap_values", 128, 1 << 24));
  info.vocab = static_cast<int>(fields.Int("vocab", 1, 1 << 24));
  info.stages = static_cast<int>(fields.Int("stages", 1, 64));
  info.experts = static_cast<int>(fields.Int("experts", 1, 1 << 16));
  info.experts_per_token = static_cast<int>(fields.Int("experts_per_token", 1, info.experts));
  info.window = static_cast<int>(fields.Int("window", 1, 1 << 16));
}

}  // namespace

absl::StatusOr<CaptureIndex> ParseCaptureIndex(std::string_view text, const std::string& where) {
  TP2_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  if (!json.is_object()) {
    return MakeError(absl::StatusCode::kInvalidArgument, {.what = "capture",
                                                          .expected = "a JSON object",
                                                          .got = "something else",
                                                          .where = where,
                                                          .next = kFixWriter});
  }
  Fields fields(json, where);
  const std::string schema = fields.Text("schema");
  if (schema != kCaptureSchema) {
    fields.Refuse("schema", kCaptureSchema, schema.empty() ? "none" : schema,
                  "use a tool that knows this version");
  }
  CaptureIndex index;
  CaptureInfo& info = index.info;
  info.model_identity = fields.Text("model_identity");
  if (info.model_identity.size() != kIdentityDigits || !IsLowerHex(info.model_identity)) {
    fields.Refuse("model_identity", "64 lower-case hex digits", "something else",
                  "dspark-pack verify prints it");
  }
  info.engine = fields.Text("engine");
  if (const Json* version = fields.Find("numerics_version");
      version != nullptr && !version->is_null()) {
    info.numerics_version = static_cast<uint64_t>(
        fields.Int("numerics_version", 0, std::numeric_limits<int64_t>::max()));
  }
  ReadSizes(fields, info);
  ReadWindows(fields, info);
  ReadOptional(fields, info);
  index.rounds = fields.Int("rounds", 1, kMaxRounds);
  index.shards = fields.Texts("shards", kMaxShards);
  if (index.shards.empty()) fields.Refuse("shards", "file names", "none");
  for (const std::string& name : index.shards) {
    if (name.empty() || !IsPlainFileName(name)) {
      fields.Refuse("shards", "plain .safetensors file names", "another name");
    }
  }
  TP2_RETURN_IF_ERROR(fields.status());
  return index;
}

std::string CaptureIndexText(const CaptureIndex& index) {
  const CaptureInfo& info = index.info;
  Json windows = Json::array(), optional = Json::array();
  if (info.has_main_x) windows.push_back("A");
  if (info.has_taps) windows.push_back("B");
  if (info.has_logits) optional.push_back("logits");
  if (info.has_confidence) optional.push_back("confidence");
  if (info.has_margins) optional.push_back("margins");
  if (info.has_routing) optional.push_back("routing");
  Json json = {{"schema", kCaptureSchema}, {"model_identity", info.model_identity},
               {"engine", info.engine},    {"numerics_version", nullptr},
               {"dim", info.dim},          {"tap_values", info.tap_values},
               {"vocab", info.vocab},      {"stages", info.stages},
               {"experts", info.experts},  {"experts_per_token", info.experts_per_token},
               {"window", info.window},    {"windows", windows},
               {"optional", optional},     {"rounds", index.rounds},
               {"shards", index.shards}};
  if (info.numerics_version) json["numerics_version"] = *info.numerics_version;
  return json.dump(1) + "\n";
}

}  // namespace tp2
