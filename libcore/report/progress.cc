#include "libcore/report/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "libcore/base/clock.h"

namespace tp2 {

Progress::Progress(std::string what, bool is_wanted)
    : what_(std::move(what)), is_shown_(is_wanted && ::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (has_line_) std::fprintf(stderr, "\r\033[K");
}

void Progress::Update(int64_t done, int64_t total, const std::string& detail) {
  if (!is_shown_) return;
  const int64_t now_ms = SteadyClock().NowNs() / 1000000;
  if (has_line_ && now_ms - last_ms_ < 100) return;
  last_ms_ = now_ms;
  has_line_ = true;
  const int64_t percent = total > 0 ? done * 100 / total : 0;
  std::fprintf(stderr, "\r\033[K[%s] %3d %%  %s", what_.c_str(), static_cast<int>(percent),
               detail.c_str());
}

}  // namespace tp2
