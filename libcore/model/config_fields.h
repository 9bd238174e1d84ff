// Typed look-up of config.json fields: `text_config` first, then the top level. The first complaint
// wins and every later look-up returns zero, so that a parser reads straight down and asks once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "libcore/base/json.h"

namespace tp2 {

// Keeps pointers into `document`, which must outlive it. Thread-compatible.
class ConfigFields {
 public:
  // `document` must be an object; `where` names it in errors.
  ConfigFields(const Json& document, std::string where);

  // The value under `key`, or nullptr. A key given twice with unequal values is a complaint.
  const Json* Find(std::string_view key);

  bool Has(std::string_view key) { return Find(key) != nullptr; }
  int64_t Integer(std::string_view key);
  double Number(std::string_view key);
  std::string Text(std::string_view key);
  std::vector<int64_t> Integers(std::string_view key, int max_count);

  // An integer that files spell in several ways: exactly one spelling, or equal values. Absent: no
  // value.
  std::optional<int64_t> IntegerOfSpellings(std::initializer_list<std::string_view> keys);

  // Complains unless the field, when present, has this value.
  void ExpectIfPresent(std::string_view key, const Json& value, const std::string& next);

  void Complain(std::string_view key, const std::string& expected, const std::string& got,
                const std::string& next);

  const absl::Status& status() const { return status_; }

 private:
  // The value, or a complaint that it is missing.
  const Json* Require(std::string_view key, const char* expected);

  const Json* text_ = nullptr;
  const Json* root_ = nullptr;
  std::string where_;
  absl::Status status_;
};

}  // namespace tp2
