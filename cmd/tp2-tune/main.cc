// tp2-tune: which shape each launch takes on a card.
#include <optional>

#include "cmd/tp2-tune/flags.h"
#include "cmd/tp2-tune/run.h"

int main(int argc, char** argv) {
  tp2::tune::Flags flags;
  if (const std::optional<int> code = tp2::tune::ReadFlags(argc, argv, flags)) return *code;
  return tp2::tune::Run(flags);
}
