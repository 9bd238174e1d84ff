#include "libcore/config/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::config {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<double> ParseDecimal(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const bool is_good = error == std::errc() && stop == end && std::isfinite(value) && value >= 0;
  return is_good ? std::optional(value) : std::nullopt;
}

bool ParseInteger(const std::string& text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  const bool has_leading_zero = text.size() > 1 && text[0] == '0';
  return error == std::errc() && end == text.data() + text.size() && !has_leading_zero;
}

// "GPU-" and at least eight hex digits, dashes between them allowed.
bool IsGpuUuid(std::string_view text) {
  constexpr std::string_view kPrefix = "GPU-";
  if (text.substr(0, kPrefix.size()) == kPrefix) text.remove_prefix(kPrefix.size());
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const size_t digits = static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [&](char c) { return kHex.find(c) != std::string_view::npos; }));
  const size_t dashes = static_cast<size_t>(std::count(text.begin(), text.end(), '-'));
  return digits >= 8 && digits <= 32 && digits + dashes == text.size();
}

bool IsGpuList(const std::string& text) {
  const std::vector<std::string> uuids = Split(text, ',');
  return uuids.size() <= 2 && std::all_of(uuids.begin(), uuids.end(), IsGpuUuid);
}

}  // namespace

const char* OriginName(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "?";
}

const SettingSpec* FindSpec(std::span<const SettingSpec> specs, std::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [name](const SettingSpec& spec) { return name == spec.name; });
  return found == specs.end() ? nullptr : &*found;
}

absl::Status CheckValue(const SettingSpec& spec, const std::string& text,
                        const std::string& where) {
  bool is_good = true;
  std::string expected;
  switch (spec.kind) {
    case SettingKind::kText:
      break;
    case SettingKind::kInteger: {
      int64_t value = 0;
      is_good = ParseInteger(text, &value) && value >= spec.minimum && value <= spec.maximum;
      expected =
          "an integer from " + std::to_string(spec.minimum) + " to " + std::to_string(spec.maximum);
      break;
    }
    case SettingKind::kDecimal:
      is_good = ParseDecimal(text).has_value();
      expected = "a number such as 43.68, not negative";
      break;
    case SettingKind::kBoolean:
      is_good = text == "true" || text == "false";
      expected = "true or false";
      break;
    case SettingKind::kChoice: {
      const std::vector<std::string> choices = Split(spec.choices, '|');
      is_good = std::find(choices.begin(), choices.end(), text) != choices.end();
      expected = spec.choices;
      break;
    }
    case SettingKind::kList: {
      const std::vector<std::string> items = Split(text, ',');
      is_good = std::none_of(items.begin(), items.end(),
                             [](const std::string& item) { return item.empty(); });
      expected = "items with a comma between them";
      break;
    }
    case SettingKind::kGpuList:
      is_good = IsGpuList(text);
      expected = "at most two GPU UUIDs with a comma between them";
      break;
  }
  if (is_good) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = spec.name, .expected = expected, .got = "'" + text + "'", .where = where});
}

absl::StatusOr<Settings> Settings::Merge(std::span<const SettingSpec> specs,
                                         std::span<const GivenValue> given) {
  Settings settings;
  for (const SettingSpec& spec : specs) {
    settings.values_.push_back({.name = spec.name, .text = spec.default_text});
  }
  for (const GivenValue& value : given) {
    const SettingSpec* spec = FindSpec(specs, value.name);
    TP2_CHECK(spec != nullptr);
    TP2_RETURN_IF_ERROR(CheckValue(*spec, value.text, value.where));
    GivenValue& slot = settings.values_[static_cast<size_t>(spec - specs.data())];
    if (value.origin >= slot.origin) slot = value;
  }
  return settings;
}

const GivenValue& Settings::Get(std::string_view name) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [name](const GivenValue& value) { return value.name == name; });
  TP2_CHECK(found != values_.end());
  return *found;
}

int64_t Settings::Integer(std::string_view name) const {
  int64_t value = 0;
  TP2_CHECK(ParseInteger(Get(name).text, &value));
  return value;
}

double Settings::Decimal(std::string_view name) const {
  const std::optional<double> value = ParseDecimal(Get(name).text);
  TP2_CHECK(value.has_value());
  return *value;
}

std::vector<std::string> Settings::List(std::string_view name) const {
  return Split(Get(name).text, ',');
}

std::string Settings::Describe() const {
  size_t name_width = 0;
  size_t text_width = 0;
  for (const GivenValue& value : values_) {
    name_width = std::max(name_width, value.name.size());
    text_width = std::max(text_width, value.text.size());
  }
  std::string out;
  for (const GivenValue& value : values_) {
    out += value.name + std::string(name_width - value.name.size(), ' ') + " = " + value.text +
           std::string(text_width - value.text.size(), ' ') + "  # " + OriginName(value.origin);
    out += value.where.empty() ? "\n" : " " + value.where + "\n";
  }
  return out;
}

}  // namespace tp2::config
