// A built tool as a user runs it: exit code and what it prints.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <string>

namespace tp2 {

struct ToolOutcome {
  int code = -1;
  std::string text;  // what was asked for
  bool Has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

enum class ToolOutput { kBoth, kErrors };  // both outputs as they came, or stderr alone

inline ToolOutcome RunTool(const std::string& tool, const std::string& arguments,
                           ToolOutput output = ToolOutput::kBoth) {
  const std::string redirection = output == ToolOutput::kBoth ? " 2>&1" : " 2>&1 >/dev/null";
  const std::string command = TP2_BIN_DIR "/" + tool + " " + arguments + redirection;
  ToolOutcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t got = 0; (got = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.text.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// From now on no card is visible to the tools that this process runs, whatever the machine has.
inline void HideCards() { ::setenv("CUDA_VISIBLE_DEVICES", "", 1); }

}  // namespace tp2
