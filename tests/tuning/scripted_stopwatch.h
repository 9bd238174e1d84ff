// A stopwatch whose times are written down beforehand, and which notices calls in a wrong order.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "libcore/tuning/select.h"

namespace tp2::tuning {

class ScriptedStopwatch : public Stopwatch {
 public:
  // Microseconds of replay number `replay` of a choice, or why there are none.
  using Script = std::function<absl::StatusOr<double>(const Choice& choice, int replay)>;

  explicit ScriptedStopwatch(Script script) : script_(std::move(script)) {}

  absl::Status Prepare(const KernelKey& key, std::span<const Choice> choices) override {
    choices_.assign(choices.begin(), choices.end());
    replays_.assign(choices.size(), 0);
    ++prepare_count;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<double>> Time(size_t index, int replays) override {
    EXPECT_LT(index, choices_.size()) << "timed before it was prepared";
    turns.push_back(ChoiceText(choices_[index]));
    std::vector<double> us;
    for (int i = 0; i < replays; ++i) {
      const absl::StatusOr<double> time = script_(choices_[index], replays_[index]++);
      if (!time.ok()) return time.status();
      us.push_back(*time);
    }
    return us;
  }

  int prepare_count = 0;
  std::vector<std::string> turns;

 private:
  Script script_;
  std::vector<Choice> choices_;
  std::vector<int> replays_;
};

}  // namespace tp2::tuning
