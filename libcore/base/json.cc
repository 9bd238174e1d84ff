#include "libcore/base/json.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"

namespace tp2 {
namespace {

constexpr size_t kShortJsonChars = 60;

absl::Status BadJson(const std::string& where, const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument, {.what = "JSON",
                                                        .expected = "one well-formed value",
                                                        .got = got,
                                                        .where = where,
                                                        .next = "repair or regenerate the file"});
}

// Watches the event stream that builds the document; the first complaint wins and ends the parse.
class StrictWatch {
 public:
  explicit StrictWatch(int max_depth) : max_depth_(max_depth) {}

  bool On(int depth, Json::parse_event_t event, const Json& parsed) {
    if (!complaint_.empty()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= max_depth_) complaint_ = absl::StrCat("nesting deeper than ", max_depth_);
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case Json::parse_event_t::key: {
        if (!keys_.empty() && !keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          complaint_ = absl::StrCat("the key ", ShortJson(parsed), " twice in one object");
        }
        break;
      }
      case Json::parse_event_t::value:
        break;
    }
    return complaint_.empty();
  }

  const std::string& complaint() const { return complaint_; }

 private:
  int max_depth_;
  std::vector<std::set<std::string>> keys_;
  std::string complaint_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& where,
                               const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return BadJson(where, absl::StrCat(text.size(), " bytes, more than ", limits.max_bytes));
  }
  StrictWatch watch(limits.max_depth);
  // The library recurses nowhere while parsing, but its destructor and our readers do: depth is
  // bounded above.
  const auto callback = [&watch](int depth, Json::parse_event_t event, Json& parsed) {
    return watch.On(depth, event, parsed);
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), callback);
    if (!watch.complaint().empty()) return BadJson(where, watch.complaint());
    return document;
  } catch (const Json::parse_error& error) {
    // What was complained about first is the better message: a refused value ends in a syntax error
    // too.
    if (!watch.complaint().empty()) return BadJson(where, watch.complaint());
    return BadJson(where, absl::StrCat("a syntax error at byte ", error.byte));
  } catch (const Json::exception&) {
    // The only other exception of a parse; its own text quotes the number, however long.
    return BadJson(where, "a number beyond the range of fp64");
  }
}

std::string ShortJson(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShortJsonChars) text = absl::StrCat(text.substr(0, kShortJsonChars), "...");
  return text;
}

}  // namespace tp2
