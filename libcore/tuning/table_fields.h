// Strict look-up in one JSON object of a kernel table: every field is asked for by name, checked,
// and counted, so that an unknown one is noticed at the end. The first complaint wins.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "libcore/base/json.h"

namespace tp2::tuning {

// What the reader of a refusal should do.
inline constexpr char kFixTable[] = "make the table again with tp2-tune run";

// Keeps a copy of nothing but its place: `json` outlives it. Thread-compatible.
class TableFields {
 public:
  TableFields(const Json& json, std::string where);

  // After a complaint all of these give zero or nothing.
  int64_t Int(const char* field, int64_t low, int64_t high);
  std::optional<int64_t> IntOrNull(const char* field, int64_t low, int64_t high);
  // A multiple of `step` from `step` to `high`.
  int64_t Multiple(const char* field, int64_t step, int64_t high);
  // A finite number; `low` itself is none for low = 0, because no launch takes no time.
  std::optional<double> NumberOrNull(const char* field, double low, double high);
  // 1 to 128 printable characters.
  std::string Text(const char* field);
  std::optional<std::string> TextOrNull(const char* field);
  std::string OneOf(const char* field, std::initializer_list<const char*> values);
  bool IsNull(const char* field);
  // The complaint of a field that is no object comes from the result's End.
  TableFields Object(const char* field);
  const Json& Value(const char* field);

  const absl::Status& status() const { return status_; }
  // The first complaint, or that a field is unknown.
  absl::Status End();

 private:
  const Json* Find(const char* field);
  void Refuse(const std::string& field, const std::string& expected, const Json& got);

  const Json* json_;
  std::string where_;
  std::set<std::string> asked_;
  absl::Status status_;
};

}  // namespace tp2::tuning
