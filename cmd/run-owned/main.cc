// run-owned: runs a command on borrowed cards and leaves nothing behind.
#include <optional>

#include "cmd/run-owned/flags.h"
#include "cmd/run-owned/run.h"

int main(int argc, char** argv) {
  tp2::owned::Flags flags;
  if (const std::optional<int> code = tp2::owned::ReadFlags(argc, argv, flags)) return *code;
  return tp2::owned::Run(flags);
}
