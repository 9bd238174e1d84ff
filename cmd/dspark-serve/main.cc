// dspark-serve: the worker that drafts for engines.
#include <optional>

#include "cmd/dspark-serve/flags.h"
#include "cmd/dspark-serve/run.h"

int main(int argc, char** argv) {
  tp2::serve::Flags flags;
  if (const std::optional<int> code = tp2::serve::ReadFlags(argc, argv, flags)) return *code;
  return tp2::serve::Run(flags);
}
