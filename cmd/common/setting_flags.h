// A table of settings as flags: --NAME for each, with its group, help, kind and default in --help.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "libcore/config/settings.h"

namespace tp2::cmd {

// How a boolean is given: `--name true|false`, or `--name` for true and `--name=false`.
enum class BooleanForm { kValue, kSwitch };

// Lives as long as the parser. Values are checked by Settings::Merge, not here.
class SettingFlags {
 public:
  // `app` and `specs` outlive this.
  SettingFlags(CLI::App& app, std::span<const config::SettingSpec> specs, BooleanForm form);

  // After parsing: what the command line named.
  std::vector<config::GivenValue> Given() const;

 private:
  std::span<const config::SettingSpec> specs_;
  std::deque<std::string> texts_;  // one per spec, at addresses that CLI11 keeps
  std::vector<CLI::Option*> options_;
};

}  // namespace tp2::cmd
