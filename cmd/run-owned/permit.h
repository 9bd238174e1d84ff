// The permit: a small file in which the coordinator names who may use the cards. It is only ever
// read; nothing here creates, writes or locks it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libcore/base/unique_fd.h"

namespace tp2::owned {

enum class PermitState {
  kOurs,        // names us
  kOther,       // names somebody else
  kNobody,      // missing, empty, or not a small regular file
  kUnreadable,  // the system refuses to say
};

struct PermitReading {
  PermitState state = PermitState::kNobody;
  std::string detail = {};    // for people: "names OTHER-LANE", "is missing"
  std::string identity = {};  // changes with the file behind the path or its time of change
};

// Whether the text names `name` as a whole word; words end at white space, `=`, `:` and `,`.
bool NamesOwner(std::string_view text, std::string_view name);

// Never blocks on a FIFO or a device, never follows a link at the last component.
PermitReading ReadPermit(const std::string& path, const std::string& name);

// Watches the permit's directory, because a watch on the file dies with the first atomic
// replacement; reading by path every kPollMs is what the promise stands on. Thread-compatible.
class PermitWatch {
 public:
  static constexpr int kPollMs = 200;
  // A file that was truncated is often rewritten at once: nobody counts when it still says so after
  // this long.
  static constexpr int kConfirmMs = 100;
  static constexpr int kUnreadableMs = 1000;

  PermitWatch(std::string path, std::string name);

  // Readable when something happened in the directory; -1 without inotify.
  int fd() const { return inotify_.get(); }
  // Why there are no events; empty when there are.
  const std::string& warning() const { return warning_; }

  // Takes all events off fd(); true when one of them may concern the permit.
  bool TakeEvents();
  // Reads the permit. A text: it is no longer ours, and why.
  std::optional<std::string> Check(int64_t now_ns);
  // When Check is due again without any event.
  int64_t due_ns() const { return due_ns_; }
  // Once per change of a permit that stayed ours.
  bool TakeChanged();

 private:
  void Rewatch();

  std::string path_;
  std::string name_;
  std::string folder_;
  std::string file_name_;
  UniqueFd inotify_;
  std::string warning_;
  std::string identity_;
  bool has_changed_ = false;
  std::optional<int64_t> nobody_since_ns_;
  std::optional<int64_t> negative_since_ns_;
  int64_t due_ns_ = 0;
};

}  // namespace tp2::owned
