#include "cmd/dspark-serve/flags.h"

#include "cmd/common/flags.h"
#include "cmd/common/setting_flags.h"
#include "libcore/config/worker_config.h"

namespace tp2::serve {
std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "dspark-serve", "serve the drafter to engines over DSPK/1");
  app.add_option("--config", flags.config_path, "YAML file of settings")
      ->option_text("FILE")
      ->group("Input");
  const cmd::SettingFlags settings(app, config::WorkerSettings(), cmd::BooleanForm::kValue);
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
  flags.given = settings.Given();
  return code;
}

}  // namespace tp2::serve
