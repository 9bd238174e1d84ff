// One stderr line that is rewritten while work goes on; silent unless stderr is a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace tp2 {

// Thread-compatible. Rewrites at most ten times a second; the destructor removes the line.
class Progress {
 public:
  // `what` stands in front: "[what]  42 %".
  explicit Progress(std::string what, bool is_wanted = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done, int64_t total, const std::string& detail = "");

 private:
  std::string what_;
  bool is_shown_;
  bool has_line_ = false;
  int64_t last_ms_ = 0;
};

}  // namespace tp2
