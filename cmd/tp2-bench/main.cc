// tp2-bench: what the drafter costs, in bytes and in time.
#include <optional>

#include "cmd/tp2-bench/flags.h"
#include "cmd/tp2-bench/run.h"

int main(int argc, char** argv) {
  tp2::bench::Flags flags;
  if (const std::optional<int> code = tp2::bench::ReadFlags(argc, argv, flags)) return *code;
  return tp2::bench::Run(flags);
}
