#include "libcore/telemetry/cards.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::telemetry {
namespace {

constexpr std::string_view kPrefix = "GPU-";
constexpr size_t kFullUuidChars = 40;
constexpr size_t kMinPrefixDigits = 8;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// The hex digits of a UUID text, or empty when another character is in it.
std::string Digits(std::string_view text) {
  const std::string lower = Lower(text);
  std::string_view rest = lower;
  if (rest.starts_with("gpu-")) rest.remove_prefix(kPrefix.size());
  std::string digits;
  for (const char c : rest) {
    if (c == '-') continue;
    if (!IsHex(c)) return "";
    digits += c;
  }
  return digits;
}

std::string Describe(std::span<const CardInfo> cards) {
  std::string text;
  for (const CardInfo& card : cards) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", card.uuid);
    if (!card.pci.empty()) absl::StrAppend(&text, " at ", card.pci);
  }
  return text.empty() ? "no card" : text;
}

absl::Status Refused(const std::string& text, const std::string& expected, const std::string& got,
                     const std::string& next) {
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = "card " + text, .expected = expected, .got = got, .where = "", .next = next});
}

absl::StatusOr<CardInfo> MatchOne(const std::string& text, std::span<const CardInfo> present) {
  if (Lower(text).starts_with("mig-")) {
    return Refused(text, "a whole card", "a MIG instance", "name the card itself");
  }
  const std::string digits = Digits(text);
  if (digits.size() < kMinPrefixDigits) {
    return Refused(text, "at least 8 hex digits of a UUID", absl::StrCat("'", text, "'"),
                   absl::StrCat("present: ", Describe(present)));
  }
  std::vector<CardInfo> found;
  std::copy_if(present.begin(), present.end(), std::back_inserter(found),
               [&digits](const CardInfo& card) { return Digits(card.uuid).starts_with(digits); });
  if (found.empty()) {
    return Refused(text, "a card of this machine", "none",
                   absl::StrCat("present: ", Describe(present)));
  }
  if (found.size() > 1) {
    return Refused(text, "one card", absl::StrCat(found.size(), " cards"),
                   absl::StrCat("give more digits: ", Describe(found)));
  }
  return found.front();
}

bool IsSamePci(std::string_view full, std::string_view wanted) {
  const std::string a = Lower(full);
  std::string_view b = wanted;
  while (b.starts_with('0') && b.size() > std::string_view("41:00.0").size()) b.remove_prefix(1);
  if (b.starts_with(':')) b.remove_prefix(1);
  if (b.size() < std::string_view("1:00.0").size() || !a.ends_with(Lower(b))) return false;
  // What the wanted text leaves out must be zeroes of the domain.
  const std::string_view rest = std::string_view(a).substr(0, a.size() - b.size());
  return std::all_of(rest.begin(), rest.end(), [](char c) { return c == '0' || c == ':'; });
}

}  // namespace

Json ToJson(const CardInfo& card) {
  return {{"index", card.index}, {"uuid", card.uuid}, {"name", card.name}, {"pci", card.pci}};
}

absl::StatusOr<CardInfo> CardFromJson(const Json& json) {
  const auto is_text = [&json](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string();
  };
  if (!is_text("uuid") || !is_text("name") || !is_text("pci") || !json.contains("index") ||
      !json["index"].is_number_unsigned()) {
    return absl::DataLossError("telemetry: expected a card, got something else");
  }
  return CardInfo{.index = json["index"].get<unsigned>(),
                  .uuid = json["uuid"].get<std::string>(),
                  .name = json["name"].get<std::string>(),
                  .pci = json["pci"].get<std::string>()};
}

bool IsFullUuid(std::string_view text) {
  if (text.size() != kFullUuidChars || !text.starts_with(kPrefix)) return false;
  for (size_t i = kPrefix.size(); i < text.size(); ++i) {
    const bool is_dash_place = i == 12 || i == 17 || i == 22 || i == 27;
    if (is_dash_place ? text[i] != '-' : !IsHex(text[i])) return false;
  }
  return true;
}

absl::StatusOr<std::vector<CardInfo>> MatchCards(std::span<const std::string> wanted,
                                                 std::span<const CardInfo> present) {
  std::vector<CardInfo> cards;
  for (const std::string& text : wanted) {
    TP2_ASSIGN_OR_RETURN(const CardInfo card, MatchOne(text, present));
    for (const CardInfo& earlier : cards) {
      if (earlier.uuid == card.uuid) {
        return Refused(text, "a second card", "the first one again", "name two different cards");
      }
    }
    cards.push_back(card);
  }
  return cards;
}

absl::Status CheckPci(std::span<const CardInfo> cards, std::span<const std::string> expected) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    const std::string got = rank < cards.size() ? cards[rank].pci : "no such rank";
    if (rank >= cards.size() || !IsSamePci(got, expected[rank])) {
      return MakeError(absl::StatusCode::kUnavailable,
                       {.what = absl::StrCat("PCI address of rank ", rank),
                        .expected = expected[rank],
                        .got = got,
                        .where = rank < cards.size() ? cards[rank].uuid : "",
                        .next = "check the order of --gpus"});
    }
  }
  return absl::OkStatus();
}

}  // namespace tp2::telemetry
