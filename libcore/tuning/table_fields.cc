#include "libcore/tuning/table_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"

namespace tp2::tuning {
namespace {

constexpr size_t kMaxTextBytes = 128;

const Json& NullJson() {
  static const Json* const kNull = new Json(nullptr);
  return *kNull;
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

TableFields::TableFields(const Json& json, std::string where)
    : json_(&json), where_(std::move(where)) {
  if (json.is_object()) return;
  status_ = MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = where_, .expected = "a JSON object", .got = ShortJson(json), .next = kFixTable});
}

void TableFields::Refuse(const std::string& field, const std::string& expected, const Json& got) {
  if (!status_.ok()) return;
  status_ = MakeError(absl::StatusCode::kInvalidArgument, {.what = "field " + field,
                                                           .expected = expected,
                                                           .got = ShortJson(got),
                                                           .where = where_,
                                                           .next = kFixTable});
}

const Json* TableFields::Find(const char* field) {
  asked_.insert(field);
  if (!status_.ok()) return nullptr;
  const auto found = json_->find(field);
  if (found != json_->end()) return &*found;
  status_ = MakeError(absl::StatusCode::kInvalidArgument, {.what = absl::StrCat("field ", field),
                                                           .expected = "a value",
                                                           .got = "none",
                                                           .where = where_,
                                                           .next = kFixTable});
  return nullptr;
}

int64_t TableFields::Int(const char* field, int64_t low, int64_t high) {
  const Json* value = Find(field);
  if (value == nullptr) return 0;
  const bool is_small =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (is_small) {
    const auto number = value->get<int64_t>();
    if (number >= low && number <= high) return number;
  }
  Refuse(field, absl::StrCat("an integer from ", low, " to ", high), *value);
  return 0;
}

std::optional<int64_t> TableFields::IntOrNull(const char* field, int64_t low, int64_t high) {
  if (IsNull(field)) return std::nullopt;
  return Int(field, low, high);
}

int64_t TableFields::Multiple(const char* field, int64_t step, int64_t high) {
  const int64_t number = Int(field, step, high);
  if (number % step == 0) return number;
  Refuse(field, absl::StrCat("a multiple of ", step, " up to ", high), number);
  return 0;
}

std::optional<double> TableFields::NumberOrNull(const char* field, double low, double high) {
  const Json* value = Find(field);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : NAN;
  const bool is_inside = number <= high && (low == 0 ? number > 0 : number >= low);
  if (is_inside) return number;
  Refuse(field, absl::StrCat("null, or a number from ", low, " to ", high), *value);
  return std::nullopt;
}

std::string TableFields::Text(const char* field) {
  const Json* value = Find(field);
  if (value == nullptr) return "";
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (!text.empty() && text.size() <= kMaxTextBytes && IsPrintable(text)) return text;
  }
  Refuse(field, absl::StrCat("1 to ", kMaxTextBytes, " printable characters"), *value);
  return "";
}

std::optional<std::string> TableFields::TextOrNull(const char* field) {
  if (IsNull(field)) return std::nullopt;
  return Text(field);
}

std::string TableFields::OneOf(const char* field, std::initializer_list<const char*> values) {
  const Json* value = Find(field);
  if (value == nullptr) return "";
  std::string all;
  for (const char* one : values) {
    if (*value == one) return one;
    absl::StrAppend(&all, all.empty() ? "" : " or ", one);
  }
  Refuse(field, all, *value);
  return "";
}

bool TableFields::IsNull(const char* field) {
  const Json* value = Find(field);
  return value == nullptr || value->is_null();
}

TableFields TableFields::Object(const char* field) {
  const Json* value = Find(field);
  if (value != nullptr) return TableFields(*value, absl::StrCat(where_, ", ", field));
  TableFields nothing(NullJson(), where_);
  nothing.status_ = status_;
  return nothing;
}

const Json& TableFields::Value(const char* field) {
  const Json* value = Find(field);
  return value == nullptr ? NullJson() : *value;
}

absl::Status TableFields::End() {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : json_->items()) {
    if (asked_.count(name) > 0) continue;
    status_ = MakeError(absl::StatusCode::kInvalidArgument,
                        {.what = absl::StrCat("field ", ShortJson(name)),
                         .expected = "no such field",
                         .got = ShortJson(value),
                         .where = where_,
                         .next = kFixTable});
    break;
  }
  return status_;
}

}  // namespace tp2::tuning
