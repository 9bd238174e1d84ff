#include "libcore/config/yaml_config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"

namespace tp2::config {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// Leaves the parser at the first fault, so that no depth or repetition of it can cost anything.
struct Refusal : std::runtime_error {
  Refusal(const YAML::Mark& place, std::string wanted, std::string seen)
      : std::runtime_error(wanted),
        mark(place),
        expected(std::move(wanted)),
        got(std::move(seen)) {}
  YAML::Mark mark;
  std::string expected;
  std::string got;
};

// Events instead of YAML::Load: the loader keeps the first of two equal keys and says nothing.
class SettingsHandler final : public YAML::EventHandler {
 public:
  SettingsHandler(const std::string& where, std::span<const SettingSpec> specs)
      : where_(where), specs_(specs) {}

  std::vector<GivenValue> TakeValues() { return std::move(values_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) throw Refusal(mark, "one document", "another one");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (place_ == Place::kTop) return;  // an empty file sets nothing
    throw Refusal(mark, "a value", "nothing");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    throw Refusal(mark, "plain values", "an alias");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseDecoration(mark, tag, anchor);
    switch (place_) {
      case Place::kTop:
        throw Refusal(mark, "lines of the form key: value", "'" + value + "'");
      case Place::kKey:
        return BeginEntry(mark, value);
      case Place::kValue:
        values_.back().text = value;
        place_ = Place::kKey;
        return;
      case Place::kList:
        values_.back().text += (values_.back().text.empty() ? "" : ",") + value;
        return;
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    RefuseDecoration(mark, tag, anchor);
    if (place_ != Place::kValue || !IsList(spec_->kind)) {
      throw Refusal(mark, "a single value", "a list");
    }
    place_ = Place::kList;
  }
  void OnSequenceEnd() override { place_ = Place::kKey; }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    RefuseDecoration(mark, tag, anchor);
    if (place_ != Place::kTop) throw Refusal(mark, "a single value", "a map");
    place_ = Place::kKey;
  }
  void OnMapEnd() override { place_ = Place::kTop; }

 private:
  enum class Place { kTop, kKey, kValue, kList };

  static void RefuseDecoration(const YAML::Mark& mark, const std::string& tag,
                               YAML::anchor_t anchor) {
    // The parser reports "?" for plain and "!" for quoted scalars.
    const bool has_tag = !tag.empty() && tag != "?" && tag != "!";
    if (has_tag) throw Refusal(mark, "plain values", "the tag " + tag);
    if (anchor != YAML::NullAnchor) throw Refusal(mark, "plain values", "an anchor");
  }

  void BeginEntry(const YAML::Mark& mark, const std::string& key) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    spec_ = key.find('-') == std::string::npos ? FindSpec(specs_, name) : nullptr;
    if (spec_ == nullptr) throw Refusal(mark, "a known key", "'" + key + "'");
    const std::string line = where_ + ":" + std::to_string(mark.line + 1);
    for (const GivenValue& value : values_) {
      if (value.name != name) continue;
      throw Refusal(mark, "each key once", "'" + key + "' again, first at " + value.where);
    }
    values_.push_back({.name = name, .text = "", .origin = Origin::kFile, .where = line});
    place_ = Place::kValue;
  }

  const std::string where_;
  const std::span<const SettingSpec> specs_;
  std::vector<GivenValue> values_;
  const SettingSpec* spec_ = nullptr;  // of the last key
  Place place_ = Place::kTop;
  bool has_document_ = false;
};

absl::Status AtLine(const std::string& where, const YAML::Mark& mark, const std::string& expected,
                    const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "config file",
                    .expected = expected,
                    .got = got,
                    .where = where + ":" + std::to_string(mark.line + 1) + ":" +
                             std::to_string(mark.column + 1)});
}

}  // namespace

absl::StatusOr<std::vector<GivenValue>> ParseYamlSettings(std::string_view text,
                                                          const std::string& where,
                                                          std::span<const SettingSpec> specs) {
  SettingsHandler handler(where, specs);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const Refusal& refusal) {
    return AtLine(where, refusal.mark, refusal.expected, refusal.got);
  } catch (const YAML::Exception& error) {
    return AtLine(where, error.mark, "YAML", error.msg);
  }
  return handler.TakeValues();
}

absl::StatusOr<std::vector<GivenValue>> ReadYamlSettings(const std::string& path,
                                                         std::span<const SettingSpec> specs) {
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  return ParseYamlSettings(text, path, specs);
}

}  // namespace tp2::config
