#include "cmd/common/flags.h"

#include <algorithm>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libcore/base/build_info.h"
#include "libcore/base/error.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"

namespace tp2::cmd {
namespace {

constexpr size_t kHelpColumn = 30;

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The subcommand that the arguments reached, or the app itself.
const CLI::App* Reached(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* reached = &app;
  for (const std::string& argument : arguments) {
    for (const CLI::App* sub : reached->get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == argument) {
        reached = sub;
        break;
      }
    }
  }
  return reached;
}

std::vector<std::string> KnownFlags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// A hint for the first argument that is neither a flag nor a subcommand; else where to look.
std::string Hint(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* reached = Reached(app, arguments);
  const std::vector<std::string> flags = KnownFlags(*reached);
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(0, argument.find('='));
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) continue;
    const std::string nearest = NearestName(name, flags);
    if (!nearest.empty()) return absl::StrCat("did you mean ", nearest, " for ", name, "?");
  }
  std::vector<std::string> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
  }
  if (reached == &app && !arguments.empty()) {
    const std::string nearest = NearestName(arguments.front(), commands);
    if (!nearest.empty()) return absl::StrCat("did you mean ", nearest, "?");
  }
  const std::string inner = reached == &app ? "" : " " + reached->get_name();
  return absl::StrCat("see ", app.get_name(), inner, " --help");
}

// CLI11 ends some messages with line breaks; errors are one line.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

void SetUpApp(CLI::App& app, const std::string& tool, const std::string& purpose) {
  const BuildInfo info = GetBuildInfo();
  app.name(tool);
  app.description(absl::StrCat(tool, ": ", purpose));
  app.set_version_flag("-V,--version", absl::StrCat(tool, " ", info.version, " (", info.git_id,
                                                    ", ", info.compiler, ")"));
  app.get_formatter()->column_width(kHelpColumn);
}

std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help and --version
    std::ostringstream text;
    app.exit(success, text, text);
    return ReportStatus(app.get_name().c_str(), PrintResult(text.str()));
  } catch (const CLI::ParseError& error) {
    return ReportStatus(app.get_name().c_str(), MakeError(absl::StatusCode::kInvalidArgument,
                                                          {.what = OneLine(error.what()),
                                                           .expected = "",
                                                           .got = "",
                                                           .where = "",
                                                           .next = Hint(app, arguments)}));
  }
}

void AddKernels(CLI::App& sub, std::string& path) {
  sub.add_option("--kernels", path, "tp2_kernels.json of tp2-tune; safe defaults without it")
      ->option_text("FILE")
      ->group("Hardware");
}

std::string NearestName(std::string_view text, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = std::max<size_t>(2, text.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(text, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tp2::cmd
