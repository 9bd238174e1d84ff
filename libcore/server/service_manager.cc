#include "libcore/server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstring>

namespace tp2::server {

ServiceManager::ServiceManager(const config::ServiceEnvironment& environment, const Clock* clock)
    : clock_(clock),
      path_(environment.notify_socket),
      watchdog_ns_(environment.watchdog_us * 1000) {
  if (path_.size() < 2 || path_.size() >= sizeof(sockaddr_un::sun_path)) return;
  if (path_[0] != '/' && path_[0] != '@') return;
  socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void ServiceManager::Send(const std::string& state) {
  if (!socket_.is_open()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const socklen_t address_bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  // A manager that does not read must not stop the worker: whatever does not fit is lost.
  (void)::sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&address), address_bytes);
}

void ServiceManager::LoopIsAlive() {
  if (watchdog_ns_ <= 0) return;
  const int64_t now_ns = clock_->NowNs();
  if (now_ns - last_alive_ns_.load() < watchdog_ns_ / 4) return;
  last_alive_ns_.store(now_ns);
  Send("WATCHDOG=1");
}

ServiceManager::StartUp::StartUp(ServiceManager* manager)
    : thread_([this, manager] {
        constexpr int kSlices = 120;  // of 5 s
        std::unique_lock lock(mutex_);
        for (int i = 0; i < kSlices && !is_over_; ++i) {
          manager->Send("EXTEND_TIMEOUT_USEC=30000000");
          changed_.wait_for(lock, std::chrono::seconds(5), [this] { return is_over_; });
        }
      }) {}

ServiceManager::StartUp::~StartUp() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

}  // namespace tp2::server
