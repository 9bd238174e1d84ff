#include "libcore/telemetry/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::telemetry {
namespace {

constexpr unsigned kMaxCards = 64;
constexpr unsigned kTextChars = 96;

absl::Status Unusable(const std::string& what, const std::string& got, const std::string& next) {
  return MakeError(absl::StatusCode::kUnavailable, {.what = what,
                                                    .expected = "an answer of the NVIDIA driver",
                                                    .got = got,
                                                    .where = "",
                                                    .next = next});
}

// A C string in a buffer that another library filled.
std::string Text(const char (&buffer)[kTextChars]) {
  return std::string(buffer, std::find(buffer, std::end(buffer), '\0'));
}

}  // namespace

std::string NvmlMeaning(NvmlReturn code) {
  switch (code) {
    case kNvmlNoPermission:
      return "no permission (code 4)";
    case kNvmlDriverNotLoaded:
      return "the NVIDIA driver is not loaded (code 9)";
    case kNvmlTimeout:
      return "the driver did not answer in time (code 10)";
    case kNvmlFunctionNotFound:
      return "the driver is too old for this call (code 13)";
    case kNvmlGpuIsLost:
      return "the card is lost (code 15)";
    case kNvmlResetRequired:
      return "the card needs a reset (code 16)";
    case kNvmlLibraryMismatch:
      return "the driver was upgraded while the system ran: the library is newer or older than the "
             "loaded kernel module (code 18)";
    default:
      return absl::StrCat("code ", code);
  }
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml->library_ == nullptr) {
    const char* reason = ::dlerror();
    return Unusable("NVML", reason == nullptr ? "no library" : reason,
                    "install the NVIDIA driver, or name the library");
  }
  const auto resolve = [&nvml](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        ::dlsym(nvml->library_, symbol));
    return function != nullptr;
  };
#define TP2_NVML_RESOLVE_REQUIRED(member, symbol, arguments)                   \
  if (!resolve(nvml->functions_.member, symbol)) {                             \
    return Unusable("NVML", "no function " symbol " in the library", library); \
  }
#define TP2_NVML_RESOLVE_OPTIONAL(member, symbol, arguments) \
  resolve(nvml->functions_.member, symbol);
  TP2_NVML_REQUIRED(TP2_NVML_RESOLVE_REQUIRED)
  TP2_NVML_OPTIONAL(TP2_NVML_RESOLVE_OPTIONAL)
#undef TP2_NVML_RESOLVE_REQUIRED
#undef TP2_NVML_RESOLVE_OPTIONAL
  const NvmlReturn code = nvml->functions_.init();
  if (code != kNvmlSuccess) {
    return Unusable("NVML start", NvmlMeaning(code),
                    code == kNvmlLibraryMismatch
                        ? "restart the machine or reload the kernel module, then try again"
                        : "check the driver");
  }
  nvml->is_started_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (is_started_) functions_.shutdown();
  if (library_ != nullptr) ::dlclose(library_);
}

absl::StatusOr<std::vector<CardInfo>> Nvml::Cards() const {
  unsigned count = 0;
  const NvmlReturn code = functions_.device_count(&count);
  if (code != kNvmlSuccess)
    return Unusable("NVML card count", NvmlMeaning(code), "check the cards");
  std::vector<CardInfo> cards;
  for (unsigned index = 0; index < std::min(count, kMaxCards); ++index) {
    CardInfo card{.index = index};
    const absl::StatusOr<NvmlDevice> device = Device(card);
    char text[kTextChars] = {};
    // A card that does not answer is not there; if somebody asks for it, it is not found.
    if (!device.ok() || functions_.uuid(*device, text, sizeof text) != kNvmlSuccess) continue;
    card.uuid = Text(text);
    char name[kTextChars] = {};
    if (functions_.name != nullptr && functions_.name(*device, name, sizeof name) == kNvmlSuccess) {
      card.name = Text(name);
    }
    NvmlPciInfo pci = {};
    if (functions_.pci_info != nullptr && functions_.pci_info(*device, &pci) == kNvmlSuccess) {
      card.pci = std::string(pci.bus_id, std::find(pci.bus_id, std::end(pci.bus_id), '\0'));
    }
    cards.push_back(card);
  }
  return cards;
}

absl::StatusOr<NvmlDevice> Nvml::Device(const CardInfo& card) const {
  NvmlDevice device = nullptr;
  const NvmlReturn code = functions_.handle_by_index(card.index, &device);
  if (code != kNvmlSuccess) {
    return Unusable(absl::StrCat("card ", card.index), NvmlMeaning(code), "check the card");
  }
  return device;
}

std::string Nvml::DriverVersion() const {
  char text[kTextChars] = {};
  if (functions_.driver_version == nullptr ||
      functions_.driver_version(text, sizeof text) != kNvmlSuccess) {
    return "";
  }
  return Text(text);
}

}  // namespace tp2::telemetry
