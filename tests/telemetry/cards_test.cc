#include "libcore/telemetry/cards.h"

#include <gtest/gtest.h>

namespace tp2::telemetry {
namespace {

const CardInfo kFirst = {.index = 0,
                         .uuid = "GPU-c4e7a371-1111-2222-3333-444455556666",
                         .name = "A",
                         .pci = "00000000:41:00.0"};
const CardInfo kSecond = {.index = 1,
                          .uuid = "GPU-7744b44b-1111-2222-3333-444455556666",
                          .name = "B",
                          .pci = "00000001:61:00.0"};
const CardInfo kTwin = {.index = 2,
                        .uuid = "GPU-c4e7a371-9999-2222-3333-444455556666",
                        .name = "C",
                        .pci = "00000000:A1:00.0"};
const std::vector<CardInfo> kPresent = {kFirst, kSecond, kTwin};

absl::StatusOr<std::vector<CardInfo>> Match(const std::vector<std::string>& wanted) {
  return MatchCards(wanted, kPresent);
}

TEST(MatchCards, KeepsTheWantedOrder) {
  const auto cards = Match({"7744B44B", "gpu-c4e7a371-1111"});
  ASSERT_TRUE(cards.ok()) << cards.status();
  EXPECT_EQ((*cards)[0].uuid, kSecond.uuid);
  EXPECT_EQ((*cards)[1].uuid, kFirst.uuid);
}

TEST(MatchCards, RefusesWhatIsNotExactlyOneCard) {
  for (const char* text :
       {"c4e7a371", "GPU-c4e7a371", "7744b44", "", "GPU-", "zzzzzzzz", "MIG-7744b44b", "deadbeef",
        "7744b44b-1111-2222-3333-4444555566667", "7744b44b-2"}) {
    const auto cards = Match({text});
    ASSERT_FALSE(cards.ok()) << text;
    EXPECT_EQ(cards.status().code(), absl::StatusCode::kUnavailable) << text;
  }
}

TEST(MatchCards, ListsTheCandidatesOfAnAmbiguousPrefix) {
  const std::string message(Match({"c4e7a371"}).status().message());
  EXPECT_NE(message.find(kFirst.uuid), std::string::npos);
  EXPECT_NE(message.find(kTwin.uuid), std::string::npos);
  EXPECT_EQ(message.find(kSecond.uuid), std::string::npos);
}

TEST(MatchCards, RefusesOneCardUnderTwoSpellings) {
  EXPECT_FALSE(Match({"7744b44b", kSecond.uuid}).ok());
}

TEST(IsFullUuid, WantsFortyCharactersInFiveGroups) {
  EXPECT_TRUE(IsFullUuid(kFirst.uuid));
  EXPECT_FALSE(IsFullUuid(kFirst.uuid + "0"));
  EXPECT_FALSE(IsFullUuid(kFirst.uuid.substr(0, 39)));
  EXPECT_FALSE(IsFullUuid("GPU-c4e7a371x1111-2222-3333-444455556666"));
  EXPECT_FALSE(IsFullUuid("GPU-c4e7a37g-1111-2222-3333-444455556666"));
  EXPECT_FALSE(IsFullUuid("gpu-c4e7a371-1111-2222-3333-444455556666"));
}

TEST(CheckPci, AcceptsShortFormsOfTheSameAddressOnly) {
  const std::vector<CardInfo> cards = {kFirst};
  const auto accepts = [&cards](const std::string& text) {
    return CheckPci(cards, std::vector<std::string>{text}).ok();
  };
  EXPECT_TRUE(accepts("41:00.0"));
  EXPECT_TRUE(accepts("0000:41:00.0"));
  EXPECT_TRUE(accepts("00000000:41:00.0"));
  EXPECT_FALSE(accepts("61:00.0"));
  EXPECT_FALSE(accepts("1:00.0"));
  EXPECT_FALSE(accepts("0001:41:00.0"));
  EXPECT_FALSE(accepts(""));
}

TEST(CheckPci, DoesNotDropAnotherDomain) {
  EXPECT_FALSE(CheckPci(std::vector<CardInfo>{kSecond}, std::vector<std::string>{"61:00.0"}).ok());
  EXPECT_TRUE(
      CheckPci(std::vector<CardInfo>{kSecond}, std::vector<std::string>{"0001:61:00.0"}).ok());
}

TEST(CardJson, ComesBackEqualAndRefusesOtherTypes) {
  const auto card = CardFromJson(ToJson(kTwin));
  ASSERT_TRUE(card.ok());
  EXPECT_EQ(card->uuid, kTwin.uuid);
  EXPECT_EQ(card->index, kTwin.index);
  for (const char* key : {"uuid", "index", "name", "pci"}) {
    Json json = ToJson(kTwin);
    json[key] = Json::array();
    EXPECT_FALSE(CardFromJson(json).ok()) << key;
    json.erase(key);
    EXPECT_FALSE(CardFromJson(json).ok()) << key;
  }
  EXPECT_FALSE(CardFromJson(Json(3)).ok());
}

}  // namespace
}  // namespace tp2::telemetry
