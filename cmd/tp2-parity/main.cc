// tp2-parity: compare what drafters put out.
#include <optional>

#include "cmd/tp2-parity/flags.h"
#include "cmd/tp2-parity/run.h"

int main(int argc, char** argv) {
  tp2::parity::Flags flags;
  if (const std::optional<int> code = tp2::parity::ReadFlags(argc, argv, flags)) return *code;
  return tp2::parity::Run(flags);
}
