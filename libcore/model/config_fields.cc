#include "libcore/model/config_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/strings.h"

namespace tp2 {
namespace {

constexpr char kMissing[] = "no such field";
constexpr char kTakeFromModel[] = "take the value from the model's published config.json";

const Json* Member(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(std::string(key));
  return it == object->end() ? nullptr : &*it;
}

}  // namespace

ConfigFields::ConfigFields(const Json& document, std::string where)
    : root_(&document), where_(std::move(where)) {
  text_ = Member(root_, "text_config");
  if (text_ != nullptr && !text_->is_object()) {
    Complain("text_config", "an object", ShortJson(*text_), kTakeFromModel);
    text_ = nullptr;
  }
}

void ConfigFields::Complain(std::string_view key, const std::string& expected,
                            const std::string& got, const std::string& next) {
  if (!status_.ok()) return;
  status_ = MakeError(absl::StatusCode::kInvalidArgument,
                      {.what = absl::StrCat("config field ", ToAbsl(key)),
                       .expected = expected,
                       .got = got,
                       .where = where_,
                       .next = next});
}

const Json* ConfigFields::Find(std::string_view key) {
  const Json* inner = Member(text_, key);
  const Json* outer = Member(root_, key);
  if (inner != nullptr && outer != nullptr && *inner != *outer) {
    Complain(key, "one value",
             absl::StrCat(ShortJson(*inner), " in text_config and ", ShortJson(*outer), " outside"),
             "remove the wrong one");
  }
  return inner != nullptr ? inner : outer;
}

const Json* ConfigFields::Require(std::string_view key, const char* expected) {
  const Json* value = Find(key);
  if (value == nullptr) Complain(key, expected, kMissing, kTakeFromModel);
  return value;
}

int64_t ConfigFields::Integer(std::string_view key) {
  const Json* value = Require(key, "an integer");
  if (value == nullptr) return 0;
  // An unsigned value beyond int64 would wrap when read as one.
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    Complain(key, "an integer", ShortJson(*value), kTakeFromModel);
    return 0;
  }
  return value->get<int64_t>();
}

double ConfigFields::Number(std::string_view key) {
  const Json* value = Require(key, "a number");
  if (value == nullptr) return 0;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Complain(key, "a finite number", ShortJson(*value), kTakeFromModel);
    return 0;
  }
  return value->get<double>();
}

std::string ConfigFields::Text(std::string_view key) {
  const Json* value = Require(key, "a text");
  if (value == nullptr) return "";
  if (!value->is_string()) {
    Complain(key, "a text", ShortJson(*value), kTakeFromModel);
    return "";
  }
  return value->get<std::string>();
}

std::vector<int64_t> ConfigFields::Integers(std::string_view key, int max_count) {
  std::vector<int64_t> result;
  const Json* value = Require(key, "a list of integers");
  if (value == nullptr) return result;
  const std::string expected = absl::StrCat("a list of at most ", max_count, " integers");
  bool is_good = value->is_array() && value->size() <= static_cast<size_t>(max_count);
  if (is_good) {
    for (const Json& item : *value) {
      is_good = is_good && item.is_number_integer() &&
                !(item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX);
      if (is_good) result.push_back(item.get<int64_t>());
    }
  }
  if (!is_good) Complain(key, expected, ShortJson(*value), kTakeFromModel);
  return result;
}

std::optional<int64_t> ConfigFields::IntegerOfSpellings(
    std::initializer_list<std::string_view> keys) {
  std::optional<int64_t> result;
  std::string_view first;
  for (const std::string_view key : keys) {
    if (!Has(key)) continue;
    const int64_t value = Integer(key);
    if (result.has_value() && *result != value) {
      Complain(key, absl::StrCat(*result, " like ", ToAbsl(first)), absl::StrCat(value),
               "remove the wrong one");
    }
    if (!result.has_value()) {
      result = value;
      first = key;
    }
  }
  return result;
}

void ConfigFields::ExpectIfPresent(std::string_view key, const Json& value,
                                   const std::string& next) {
  const Json* found = Find(key);
  if (found != nullptr && *found != value) {
    Complain(key, ShortJson(value), ShortJson(*found), next);
  }
}

}  // namespace tp2
