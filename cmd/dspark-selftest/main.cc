// dspark-selftest: a client that checks what a worker promises.
#include <optional>

#include "cmd/dspark-selftest/flags.h"
#include "cmd/dspark-selftest/run.h"

int main(int argc, char** argv) {
  tp2::selftest::Flags flags;
  if (const std::optional<int> code = tp2::selftest::ReadFlags(argc, argv, flags)) return *code;
  return tp2::selftest::Run(flags);
}
