#include "cmd/common/setting_flags.h"

#include "absl/strings/str_cat.h"

namespace tp2::cmd {
namespace {

const char* ValueText(const config::SettingSpec& spec) {
  switch (spec.kind) {
    case config::SettingKind::kInteger:
      return "N";
    case config::SettingKind::kDecimal:
      return "NUMBER";
    case config::SettingKind::kBoolean:
      return "true|false";
    case config::SettingKind::kChoice:
      return spec.choices;
    case config::SettingKind::kList:
      return "ITEM[,ITEM]";
    case config::SettingKind::kGpuList:
      return "UUID[,UUID]";
    case config::SettingKind::kText:
      return "TEXT";
  }
  return "";
}

}  // namespace

SettingFlags::SettingFlags(CLI::App& app, std::span<const config::SettingSpec> specs,
                           BooleanForm form)
    : specs_(specs) {
  for (const config::SettingSpec& spec : specs) {
    const std::string name = absl::StrCat("--", spec.name);
    std::string& text = texts_.emplace_back();
    if (spec.kind == config::SettingKind::kBoolean && form == BooleanForm::kSwitch) {
      options_.push_back(app.add_flag(name, text, spec.help));
    } else {
      const std::string fallback =
          *spec.default_text == '\0' ? "" : absl::StrCat(" [", spec.default_text, "]");
      options_.push_back(app.add_option(name, text, spec.help)
                             ->option_text(absl::StrCat(ValueText(spec), fallback)));
    }
    options_.back()->group(spec.group);
  }
}

std::vector<config::GivenValue> SettingFlags::Given() const {
  std::vector<config::GivenValue> given;
  for (size_t i = 0; i < options_.size(); ++i) {
    if (options_[i]->count() == 0) continue;
    given.push_back({.name = specs_[i].name,
                     .text = texts_[i],
                     .origin = config::Origin::kFlag,
                     .where = absl::StrCat("--", specs_[i].name)});
  }
  return given;
}

}  // namespace tp2::cmd
