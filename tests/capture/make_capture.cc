// make_capture MODEL_DIR CAPTURE_DIR: writes tests/golden/capture-tiny (its README says how).
#include <iostream>

#include "tests/support/planted_capture.h"

namespace {

void Print(const char* what, const std::vector<tp2::PlantedPlace>& places) {
  for (const tp2::PlantedPlace& place : places) {
    std::cout << what << " round " << place.round << " block " << place.block << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_capture MODEL_DIR CAPTURE_DIR\n";
    return 2;
  }
  const auto planted = tp2::WritePlantedCapture(argv[1], argv[2], {});
  if (!planted.ok()) {
    std::cerr << planted.status() << "\n";
    return 1;
  }
  Print("near-tie", planted->near_ties);
  Print("routing", planted->routing_flips);
  Print("mismatch", planted->mismatches);
  return 0;
}
