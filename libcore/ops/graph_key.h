// Graph key: the name of one sequence of operations that never changes, so that an op set may
// record it once and replay it. What differs between two runs of one key (anchors, positions,
// slots, windows, rows) lies in memory that is uploaded before the run (drafter/step_memory.h).
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/model/drafter_config.h"

namespace tp2 {

// An insert is recorded for so many rows; fewer are padded with rows that are written nowhere. 24
// is what four requests with up to six accepted tokens bring, and one pass of a kernel over the
// weights: 20 rows in a bucket of 32 would read them twice.
inline constexpr int kInsertBuckets[] = {8, 16, 24, 32, 64, kMaxRowsPerMessage};

inline int InsertBucketOf(int rows) {
  for (const int bucket : kInsertBuckets) {
    if (rows <= bucket) return bucket;
  }
  return rows;
}

struct GraphKey {
  enum class Kind { kDraft, kInsert };

  Kind kind = Kind::kDraft;
  // Draft.
  int requests = 0;          // 1 .. kMaxRequests
  int n_out = 0;             // 1 .. kBlockRows
  bool has_margins = false;  // runner-ups and margins too
  // Insert.
  int rows = 0;            // of one kind
  bool from_taps = false;  // rows are taps, to be projected first

  static GraphKey Draft(int requests, int n_out, bool has_margins) {
    return {.kind = Kind::kDraft, .requests = requests, .n_out = n_out, .has_margins = has_margins};
  }
  static GraphKey Insert(int rows, bool from_taps) {
    return {.kind = Kind::kInsert, .rows = rows, .from_taps = from_taps};
  }

  friend auto operator<=>(const GraphKey&, const GraphKey&) = default;

  // "draft 4x5 margins", "insert 8 taps"
  std::string Name() const {
    if (kind == Kind::kInsert)
      return absl::StrCat("insert ", rows, from_taps ? " taps" : " main_x");
    return absl::StrCat("draft ", requests, "x", n_out, has_margins ? " margins" : " plain");
  }
};

// What a recorded key consists of.
struct GraphSize {
  GraphKey key;
  int kernels = 0;
  int copies = 0;
  int fills = 0;
  int events = 0;
  int total() const { return kernels + copies + fills + events; }
};

// Every key that a controller can run: 40 drafts and 12 inserts.
inline std::vector<GraphKey> AllGraphKeys() {
  std::vector<GraphKey> keys;
  for (const bool from_taps : {true, false}) {
    for (const int rows : kInsertBuckets) keys.push_back(GraphKey::Insert(rows, from_taps));
  }
  for (const bool has_margins : {true, false}) {
    for (int requests = 1; requests <= kMaxRequests; ++requests) {
      for (int n_out = 1; n_out <= kBlockRows; ++n_out) {
        keys.push_back(GraphKey::Draft(requests, n_out, has_margins));
      }
    }
  }
  return keys;
}

}  // namespace tp2
