// Shared by the tests of the whole worker: one suite per wire, and what its drafts must be.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "libcore/server/step_server.h"
#include "tests/support/serve_fixture.h"

namespace tp2::server {

using testing::RowsAt;
using testing::Wire;

class StepServerTest : public ::testing::TestWithParam<Wire> {
 protected:
  testing::RunningServer& Start(ServerOptions options = {}) {
    running_ = std::make_unique<testing::RunningServer>(GetParam(), options);
    return *running_;
  }
  testing::FakeEngine& engine() { return running_->engine(); }

  std::unique_ptr<testing::RunningServer> running_;
};

// Drafts of a fresh engine that was given the same rows.
inline contract::StepReplyEntry Expected(int64_t base, int row_count, uint32_t anchor, int n_out,
                                         int stream = 0) {
  testing::FakeEngine engine;
  EXPECT_TRUE(engine.ResetSlot(0, base).ok());
  const auto rows = RowsAt(base, row_count, stream);
  const StepEntry entry{.rows = {.slot = 0,
                                 .position = base,
                                 .kind = RowKind::kTaps,
                                 .row_count = row_count,
                                 .values = rows},
                        .anchor = static_cast<int32_t>(anchor)};
  const auto outputs = engine.Step({.entries = {&entry, 1}, .n_out = n_out});
  contract::StepReplyEntry expected;
  expected.tokens = outputs->entries[0].tokens;
  expected.confidence = outputs->entries[0].confidence_logit;
  expected.margin = outputs->entries[0].margin;
  for (int i = 0; i < kBlockRows; ++i) {
    expected.runner_up[i] = static_cast<uint32_t>(outputs->entries[0].runner_up[i]);
  }
  return expected;
}

inline void ExpectSameDrafts(const contract::StepReplyEntry& got,
                             const contract::StepReplyEntry& expected) {
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.confidence, expected.confidence);
  EXPECT_EQ(got.margin, expected.margin);
  EXPECT_EQ(got.runner_up, expected.runner_up);
}

inline std::string WireName(const ::testing::TestParamInfo<Wire>& wire) {
  return wire.param == Wire::kTcp ? "Tcp" : "Inproc";
}

}  // namespace tp2::server
