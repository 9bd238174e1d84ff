// Settings of a program from four places: flag > environment > file > default. One table of specs
// says what exists; every value given anywhere is checked, also one that another place outranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::config {

// kDecimal: not negative, as in 43.68.
enum class SettingKind { kText, kInteger, kDecimal, kBoolean, kChoice, kList, kGpuList };

struct SettingSpec {
  const char* name;  // "max-model-len": the flag without dashes; underscores in files
  SettingKind kind;
  const char* default_text;
  int64_t minimum = 0;  // kInteger
  int64_t maximum = 0;
  const char* choices = "";      // kChoice: "auto|cpu|cuda"
  const char* environment = "";  // variable that sets it; empty: none
  const char* group = "";        // heading in --help
  const char* help = "";
};

inline bool IsList(SettingKind kind) {
  return kind == SettingKind::kList || kind == SettingKind::kGpuList;
}

enum class Origin { kDefault, kFile, kEnvironment, kFlag };
const char* OriginName(Origin origin);

// One value as somebody gave it.
struct GivenValue {
  std::string name;
  std::string text;
  Origin origin = Origin::kDefault;
  std::string where = {};  // "worker.yaml:3", "DSPARK_WORKER_TP", "--tp"
};

class Settings {
 public:
  // Errors: kInvalidArgument naming setting, expected, got and where.
  static absl::StatusOr<Settings> Merge(std::span<const SettingSpec> specs,
                                        std::span<const GivenValue> given);

  // The name must be one of the specs'.
  const std::string& Text(std::string_view name) const { return Get(name).text; }
  int64_t Integer(std::string_view name) const;
  double Decimal(std::string_view name) const;
  bool Boolean(std::string_view name) const { return Get(name).text == "true"; }
  std::vector<std::string> List(std::string_view name) const;

  // `name = value  # origin` per setting, in the specs' order.
  std::string Describe() const;

 private:
  const GivenValue& Get(std::string_view name) const;

  std::vector<GivenValue> values_;  // one per spec, in its order
};

// Whether `text` is a value of the spec. Errors: kInvalidArgument.
absl::Status CheckValue(const SettingSpec& spec, const std::string& text, const std::string& where);

// The spec of a name, or null.
const SettingSpec* FindSpec(std::span<const SettingSpec> specs, std::string_view name);

}  // namespace tp2::config
