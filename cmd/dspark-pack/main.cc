// dspark-pack: synthesize, inspect and verify checkpoint folders.
#include <optional>

#include "cmd/dspark-pack/flags.h"
#include "cmd/dspark-pack/run.h"

int main(int argc, char** argv) {
  tp2::pack::Flags flags;
  if (const std::optional<int> code = tp2::pack::ReadFlags(argc, argv, flags)) return *code;
  return tp2::pack::Run(flags);
}
