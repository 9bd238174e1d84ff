#include "libcore/capture/capture.h"

namespace tp2 {

const char* CaptureWindowName(CaptureWindow window) {
  return window == CaptureWindow::kMainX ? "A" : "B";
}

CaptureInfo CaptureInfoOf(const DrafterConfig& config) {
  CaptureInfo info;
  info.dim = config.dim;
  info.tap_values = config.tap_values();
  info.vocab = config.vocab;
  info.stages = config.stages;
  info.experts = config.experts;
  info.experts_per_token = config.experts_per_token;
  info.window = config.window;
  return info;
}

}  // namespace tp2
