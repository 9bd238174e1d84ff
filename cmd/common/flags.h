// What every tool's flags.cc does the same way: --version, help, and parse errors in the one-line
// form with a hint and our exit codes instead of CLI11's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"

namespace tp2::cmd {

// Names the tool and adds -V/--version. Call before adding subcommands, which inherit the look.
void SetUpApp(CLI::App& app, const std::string& tool, const std::string& purpose);

// Parses. A value: the tool ends with it (0 after --help and --version, 2 after a bad flag, whose
// line is on stderr). No value: run.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

// The candidate that `text` was most likely meant to be: at most two edits away, or a third of its
// characters if that is more; empty when none is near.
std::string NearestName(std::string_view text, const std::vector<std::string>& candidates);

// --kernels FILE, in the group Hardware.
void AddKernels(CLI::App& sub, std::string& path);

// Exit codes as help footers print them.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 done, 1 a check failed, 2 bad flag or bad file, 3 environment, 6 internal error";

}  // namespace tp2::cmd
