// Captures: what is written is read back, and everything that is wrong is refused in one line with
// nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>

#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/capture/capture_index.h"
#include "libcore/capture/capture_reader.h"
#include "libcore/capture/capture_writer.h"

namespace tp2 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kDim = 128, kTaps = 256, kVocab = 300;

CaptureInfo SmallInfo() {
  CaptureInfo info;
  info.model_identity = std::string(64, 'a');
  info.engine = "test \"engine\"";
  info.dim = kDim;
  info.tap_values = kTaps;
  info.vocab = kVocab;
  info.stages = 2;
  info.experts = 8;
  info.experts_per_token = 3;
  info.window = 8;
  info.has_main_x = info.has_taps = true;
  info.has_confidence = info.has_margins = info.has_routing = info.has_logits = true;
  return info;
}

// A round's values, editable before they are written.
struct Block {
  CaptureBlock block;
  std::vector<Bf16> main_x, taps;
  std::vector<float> logits = std::vector<float>(kBlockRows * kVocab, 0.25f);
  std::vector<float> confidence = {1, 2, 3, 4, 5}, margins = {5, 4, 3, 2, 1};
  std::vector<float> route_margins = std::vector<float>(2 * kBlockRows, 0.5f);
  std::vector<int32_t> experts = std::vector<int32_t>(2 * kBlockRows * 3, 7);

  CaptureBlock View() const {
    CaptureBlock view = block;
    view.main_x = main_x;
    view.taps = taps;
    view.logits = logits;
    view.confidence = confidence;
    view.margins = margins;
    view.route_margins = route_margins;
    view.experts = experts;
    return view;
  }
};

struct Round {
  int n_out = 3;
  std::vector<Block> blocks;
};

Block MakeBlock(int slot, int64_t position, int row_count, bool is_first) {
  Block block;
  block.block.slot = slot;
  if (is_first) block.block.base = position;
  block.block.position = position;
  block.block.row_count = row_count;
  block.block.anchor = 11;
  block.block.drafts = {1, 2, kVocab - 1, -1, -1};
  for (int i = 0; i < row_count * kDim; ++i) block.main_x.push_back(ToBf16(0.5f * slot + i));
  for (int i = 0; i < row_count * kTaps; ++i) block.taps.push_back(ToBf16(-1.0f * i));
  return block;
}

// Three rounds: two slots; an append and a rollback.
std::vector<Round> SmallRounds() {
  return {{3, {MakeBlock(0, 100, 4, true), MakeBlock(5, 0, 1, true)}},
          {3, {MakeBlock(5, 1, 2, false)}},
          {3, {MakeBlock(0, 102, 0, false), MakeBlock(5, 2, 3, false)}}};
}

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest() : root_(::testing::TempDir() + "tp2_capture_XXXXXX") {
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    dir_ = root_ + "/capture";
  }
  ~CaptureTest() override { std::filesystem::remove_all(root_); }

  absl::Status Write(const CaptureInfo& info, const std::vector<Round>& rounds,
                     int64_t shard_bytes = 1) {
    auto writer = CaptureWriter::Create(dir_, info, shard_bytes);
    if (!writer.ok()) return writer.status();
    for (const Round& round : rounds) {
      CaptureRound view;
      view.n_out = round.n_out;
      for (const Block& block : round.blocks) view.blocks.push_back(block.View());
      if (const absl::Status status = writer->Add(view); !status.ok()) return status;
    }
    return writer->Finish();
  }

  // The refusal of a capture whose rounds `change` has spoilt.
  std::string RefusalOf(const std::function<void(std::vector<Round>&)>& change) {
    std::vector<Round> rounds = SmallRounds();
    change(rounds);
    EXPECT_TRUE(Write(SmallInfo(), rounds).ok());
    return OpenRefusal();
  }

  // The refusal of a capture whose capture.json `change` has spoilt.
  std::string IndexRefusalOf(const std::function<void(Json&)>& change) {
    EXPECT_TRUE(Write(SmallInfo(), SmallRounds()).ok());
    Json json = Json::parse(*ReadTextFile(dir_ + "/capture.json", 1 << 20));
    change(json);
    std::ofstream(dir_ + "/capture.json", std::ios::trunc) << json.dump();
    return OpenRefusal();
  }

  // Always one line; the folder is as it was.
  std::string OpenRefusal() {
    const auto reader = CaptureReader::Open(dir_);
    EXPECT_FALSE(reader.ok());
    const std::string message(reader.status().message());
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    std::filesystem::remove_all(dir_);
    return message;
  }

  std::string root_, dir_;
};

TEST_F(CaptureTest, ReadsBackWhatWasWrittenWhateverTheShards) {
  for (const int64_t shard_bytes : {int64_t{1}, int64_t{5000}, int64_t{1} << 30}) {
    ASSERT_TRUE(Write(SmallInfo(), SmallRounds(), shard_bytes).ok());
    const auto reader = CaptureReader::Open(dir_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->round_count(), 3);
    EXPECT_EQ(reader->block_count(), 5);
    EXPECT_EQ(reader->row_count(), 10);
    EXPECT_EQ(reader->max_length(), 104);
    EXPECT_EQ(reader->info().engine, "test \"engine\"");
    const std::vector<Round> rounds = SmallRounds();
    for (int r = 0; r < 3; ++r) {
      const CaptureRound round = reader->Round(r);
      ASSERT_EQ(round.blocks.size(), rounds[r].blocks.size());
      for (size_t b = 0; b < round.blocks.size(); ++b) {
        const CaptureBlock& got = round.blocks[b];
        const Block& expected = rounds[r].blocks[b];
        EXPECT_EQ(got.slot, expected.block.slot);
        EXPECT_EQ(got.base, expected.block.base);
        EXPECT_EQ(got.position, expected.block.position);
        EXPECT_EQ(got.drafts, expected.block.drafts);
        EXPECT_TRUE(std::ranges::equal(got.main_x, expected.main_x));
        EXPECT_TRUE(std::ranges::equal(got.taps, expected.taps));
        EXPECT_TRUE(std::ranges::equal(got.logits, expected.logits));
        EXPECT_TRUE(std::ranges::equal(got.confidence, expected.confidence));
        EXPECT_TRUE(std::ranges::equal(got.experts, expected.experts));
        EXPECT_TRUE(std::ranges::equal(got.route_margins, expected.route_margins));
      }
    }
    std::filesystem::remove_all(dir_);
  }
}

TEST_F(CaptureTest, RefusesAMissingOrTruncatedShard) {
  ASSERT_TRUE(Write(SmallInfo(), SmallRounds()).ok());
  std::filesystem::remove(dir_ + "/capture-00002.safetensors");
  EXPECT_THAT(OpenRefusal(), HasSubstr("capture-00002.safetensors"));
  ASSERT_TRUE(Write(SmallInfo(), SmallRounds()).ok());
  std::filesystem::resize_file(dir_ + "/capture-00001.safetensors", 2000);
  EXPECT_THAT(OpenRefusal(), HasSubstr("capture-00001.safetensors"));
}

TEST_F(CaptureTest, RefusesAPositionGapAndARollbackBeyondTheRing) {
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0].block.position = 2; }),
              HasSubstr("round 1: expected slot 5 to go on at most at 1, got a gap up to 2"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[2].blocks[0].block.position = 99; }),
              HasSubstr("expected slot 0 to roll back at most to 100, got 99"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0] = MakeBlock(6, 0, 1, false); }),
              HasSubstr("expected a base for slot 6, got none yet"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[1] = MakeBlock(5, 0, 0, true); }),
              HasSubstr("expected a context row in slot 5, got none"));
}

TEST_F(CaptureTest, RefusesRowsAndValuesThatAreNotFinite) {
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[1].main_x[7] = Bf16{0x7FC0}; }),
              HasSubstr("rows.A[519]: expected a finite value, got NaN or infinity"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].taps[3] = Bf16{0xFF80}; }),
              HasSubstr("rows.B[3]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0].logits[9] = std::nanf(""); }),
              HasSubstr("logits[9]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0].confidence[4] = INFINITY; }),
              HasSubstr("confidence[4]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0].margins[0] = std::nanf(""); }),
              HasSubstr("margins[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[1].blocks[0].route_margins[0] = std::nanf(""); }),
              HasSubstr("route_margins[0]"));
}

TEST_F(CaptureTest, RefusesEveryValueOutOfRange) {
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].n_out = 6; }), HasSubstr("n_out[0]: expected 1 to 5"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].n_out = 0; }), HasSubstr("n_out[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.slot = 8; }), HasSubstr("slots[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.slot = -1; }), HasSubstr("slots[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.slot = 5; }),
              HasSubstr("expected each slot once, got slot 5 twice"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.anchor = kVocab; }),
              HasSubstr("anchors[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.drafts[1] = kVocab; }),
              HasSubstr("drafts[0][1]: expected a token below 300"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.drafts[4] = 1; }),
              HasSubstr("drafts[0][4]: expected -1 beyond n_out 3, got 1"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.position = -1; }),
              HasSubstr("positions[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].block.base = -2; }), HasSubstr("bases[0]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0].experts[3] = 8; }), HasSubstr("experts[3]"));
  EXPECT_THAT(RefusalOf([](auto& r) { r[0].blocks[0] = MakeBlock(0, 100, 129, true); }),
              HasSubstr("offsets row_offsets[1]: expected a step of 0 to 128, got 0 to 129"));
  EXPECT_THAT(RefusalOf([](auto& r) {
                for (int slot = 1; slot < 5; ++slot) {
                  r[0].blocks.push_back(MakeBlock(slot, 0, 1, true));
                }
              }),
              HasSubstr("offsets round_blocks[1]: expected a step of 1 to 4, got 0 to 6"));
}

TEST_F(CaptureTest, RefusesAnUnknownSchemaBeforeAnythingElse) {
  EXPECT_THAT(IndexRefusalOf([](Json& json) {
                json["schema"] = "dspark-capture/2";
                json["dim"] = "wide";
              }),
              HasSubstr("field schema: expected dspark-capture/1, got dspark-capture/2"));
}

TEST_F(CaptureTest, RefusesEveryBadFieldOfTheIndex) {
  const auto refusal = [this](const char* field, const Json& value) {
    return IndexRefusalOf([&](Json& json) { json[field] = value; });
  };
  EXPECT_THAT(refusal("model_identity", "abc"), HasSubstr("field model_identity"));
  EXPECT_THAT(refusal("model_identity", std::string(64, 'G')), HasSubstr("field model_identity"));
  EXPECT_THAT(refusal("numerics_version", -1), HasSubstr("field numerics_version"));
  EXPECT_THAT(refusal("dim", 1e30), HasSubstr("field dim"));
  EXPECT_THAT(refusal("dim", 18446744073709551615u), HasSubstr("field dim"));
  EXPECT_THAT(refusal("vocab", 0), HasSubstr("field vocab"));
  EXPECT_THAT(refusal("rounds", 4), HasSubstr("rounds: expected 4, got 3 in the shards"));
  EXPECT_THAT(refusal("windows", Json::array()), HasSubstr("field windows"));
  EXPECT_THAT(refusal("windows", {"A", "C"}), HasSubstr("got C"));
  EXPECT_THAT(refusal("optional", {"logits", "logits"}), HasSubstr("field optional"));
  EXPECT_THAT(refusal("optional", {"sound"}), HasSubstr("got sound"));
  EXPECT_THAT(refusal("shards", Json::array()), HasSubstr("field shards"));
  EXPECT_THAT(refusal("shards", {"../capture-00001.safetensors"}), HasSubstr("field shards"));
  EXPECT_THAT(refusal("shards", {""}), HasSubstr("field shards"));
  EXPECT_THAT(refusal("shards", 3), HasSubstr("field shards"));
  EXPECT_THAT(IndexRefusalOf([](Json& json) { json.erase("vocab"); }), HasSubstr("field vocab"));
  EXPECT_THAT(IndexRefusalOf([](Json& json) { json = Json::array(); }), HasSubstr("JSON object"));
}

TEST_F(CaptureTest, RefusesTensorsThatTheIndexDoesNotDescribe) {
  EXPECT_THAT(IndexRefusalOf([](Json& json) { json["windows"] = {"A"}; }),
              HasSubstr("tensor rows.B: expected no such tensor, got one"));
  EXPECT_THAT(IndexRefusalOf([](Json& json) { json["dim"] = 256; }),
              HasSubstr("tensor rows.A: expected BF16 [5, 256], got BF16 [5, 128]"));
  CaptureInfo info = SmallInfo();
  info.has_logits = false;
  std::vector<Round> rounds = SmallRounds();
  ASSERT_TRUE(Write(info, rounds).ok());
  Json json = Json::parse(*ReadTextFile(dir_ + "/capture.json", 1 << 20));
  json["optional"].push_back("logits");
  std::ofstream(dir_ + "/capture.json", std::ios::trunc) << json.dump();
  EXPECT_THAT(OpenRefusal(), HasSubstr("tensor logits: expected F32, got nothing"));
}

TEST_F(CaptureTest, RefusesAForeignModelAndOtherSizes) {
  ASSERT_TRUE(Write(SmallInfo(), SmallRounds()).ok());
  const auto reader = CaptureReader::Open(dir_);
  ASSERT_TRUE(reader.ok());
  const absl::Status foreign = reader->CheckModel(std::string(64, 'b'), DrafterConfig());
  EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("model identity"));
  EXPECT_THAT(std::string(reader->CheckModel(std::string(64, 'a'), DrafterConfig()).message()),
              HasSubstr("sizes"));
}

TEST_F(CaptureTest, FolderAppearsCompleteOrNotAtAllAndIsNeverReplaced) {
  {
    auto writer = CaptureWriter::Create(dir_, SmallInfo(), 1);
    ASSERT_TRUE(writer.ok());
    const Block block = MakeBlock(0, 0, 1, true);
    ASSERT_TRUE(writer->Add({3, {block.View()}}).ok());
    EXPECT_FALSE(std::filesystem::exists(dir_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(root_)) << "an abandoned writer leaves nothing";
  EXPECT_FALSE(Write(SmallInfo(), {}).ok()) << "a capture without rounds";
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  ASSERT_TRUE(Write(SmallInfo(), SmallRounds()).ok());
  EXPECT_EQ(Write(SmallInfo(), SmallRounds()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CaptureReader::Open(dir_).ok());
}

// Every prefix of a shard and every byte of its header flipped: an answer, never a crash.
TEST_F(CaptureTest, DamagedShardsAreAnswered) {
  ASSERT_TRUE(Write(SmallInfo(), SmallRounds(), int64_t{1} << 30).ok());
  const auto file = MappedFile::Open(dir_ + "/capture-00001.safetensors");
  ASSERT_TRUE(file.ok());
  const CaptureInfo info = SmallInfo();
  std::vector<std::byte> bytes(file->bytes().begin(), file->bytes().end());
  ASSERT_TRUE(ParseCaptureShard(bytes, info, "whole").ok());
  for (size_t end = 0; end < bytes.size(); end += 37) {
    EXPECT_FALSE(ParseCaptureShard(std::span(bytes).first(end), info, "cut").ok()) << end;
  }
  int refused = 0;
  for (size_t at = 0; at < std::min<size_t>(bytes.size(), 2500); ++at) {
    const std::byte old = bytes[at];
    bytes[at] ^= std::byte{0x11};
    refused += !ParseCaptureShard(bytes, info, "flipped").ok();
    bytes[at] = old;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tp2
