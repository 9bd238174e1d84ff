// p2p-lifecycle: qualifies peer state, capture and teardown of a pair, without a model.
#include <optional>

#include "cmd/p2p-lifecycle/flags.h"
#include "cmd/p2p-lifecycle/run.h"

int main(int argc, char** argv) {
  tp2::lifecycle::Flags flags;
  if (const std::optional<int> code = tp2::lifecycle::ReadFlags(argc, argv, flags)) return *code;
  return tp2::lifecycle::Run(flags);
}
