// A built tool as a user runs it: exit code and what it prints.
#pragma once

#include <stdio.h>
#include <sys/wait.h>

#include <string>

namespace tp2 {

struct ToolOutcome {
  int code = -1;
  std::string text;  // stdout, then stderr as it came
  bool Has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

inline ToolOutcome RunTool(const std::string& tool, const std::string& arguments) {
  const std::string command = TP2_BIN_DIR "/" + tool + " " + arguments + " 2>&1";
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

}  // namespace tp2
