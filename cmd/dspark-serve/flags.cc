#include "cmd/dspark-serve/flags.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"
#include "libcore/config/worker_config.h"

namespace tp2::serve {
namespace {

const char* ValueText(const config::SettingSpec& spec) {
  switch (spec.kind) {
    case config::SettingKind::kInteger:
      return "N";
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

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "dspark-serve", "serve the drafter to engines over DSPK/1");
  app.add_option("--config", flags.config_path, "YAML file of settings")
      ->option_text("FILE")
      ->group("Input");
  std::deque<std::string> texts;
  std::vector<CLI::Option*> options;
  for (const config::SettingSpec& spec : config::WorkerSettings()) {
    const std::string fallback =
        *spec.default_text == '\0' ? "" : absl::StrCat(" [", spec.default_text, "]");
    options.push_back(app.add_option(absl::StrCat("--", spec.name), texts.emplace_back(), spec.help)
                          ->option_text(absl::StrCat(ValueText(spec), fallback))
                          ->group(spec.group));
  }
  app.add_flag("--check-config", flags.only_checks_config, "validate everything, then exit")
      ->group("Service");
  app.add_flag("--print-config", flags.only_prints_config, "each value and where it came from")
      ->group("Service");
  app.footer(
      "Order: flag, then environment, then file, then default. Environment: DSPARK_WORKER_TP,\n"
      "DSPARK_TP_TIMEOUT_MS, DSPARK_TP_FUSE_PAIRS, CUDA_VISIBLE_DEVICES (UUIDs).\n"
      "SIGTERM drains; a second one does not wait. Clients from other machines need --listen,\n"
      "--allow-clients and --secret-file (openssl rand -hex 32 >FILE; chmod 600 FILE).\n"
      "Examples:\n"
      "  dspark-serve --model tiny\n"
      "  dspark-serve --config worker.yaml --listen 127.0.0.1:0\n"
      "  dspark-serve --config worker.yaml --print-config\n"
      "Exit codes: 0 drained, 2 bad flag or bad file, 3 environment, 4 engine lost or failing");
  const std::optional<int> code = cmd::ParseFlags(app, argc, argv);
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i]->count() == 0) continue;
    const char* name = config::WorkerSettings()[i].name;
    flags.given.push_back({.name = name,
                           .text = texts[i],
                           .origin = config::Origin::kFlag,
                           .where = absl::StrCat("--", name)});
  }
  return code;
}

}  // namespace tp2::serve
