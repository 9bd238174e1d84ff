// Preloaded in front of a program: its sockets work as badly as the contract of the calls allows.
// Every second receive, send and wait is interrupted, every other one of the rest has to be
// repeated, and what is left moves one byte.
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

// Apart: waits that follow each failed transfer would otherwise always meet the same one.
std::atomic<unsigned> transfers{0};
std::atomic<unsigned> waits{0};

template <class Call>
Call Next(const char* name) {
  return reinterpret_cast<Call>(::dlsym(RTLD_NEXT, name));
}

// The error this call ends with; 0: none.
int Trouble() {
  switch (transfers.fetch_add(1) % 4) {
    case 0:
    case 2:
      return EINTR;
    case 1:
      return EAGAIN;
    default:
      return 0;
  }
}

}  // namespace

extern "C" ssize_t recv(int fd, void* buffer, size_t count, int flags) {
  static const auto next = Next<ssize_t (*)(int, void*, size_t, int)>("recv");
  if (const int trouble = Trouble(); trouble != 0) {
    errno = trouble;
    return -1;
  }
  return next(fd, buffer, count > 1 ? 1 : count, flags);
}

extern "C" ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static const auto next = Next<ssize_t (*)(int, const struct msghdr*, int)>("sendmsg");
  if (const int trouble = Trouble(); trouble != 0) {
    errno = trouble;
    return -1;
  }
  // The first byte of the first part that has one.
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    if (message->msg_iov[i].iov_len == 0) continue;
    struct iovec one = {message->msg_iov[i].iov_base, 1};
    struct msghdr small = *message;
    small.msg_iov = &one;
    small.msg_iovlen = 1;
    return next(fd, &small, flags);
  }
  return next(fd, message, flags);
}

extern "C" int poll(struct pollfd* fds, nfds_t count, int timeout_ms) {
  static const auto next = Next<int (*)(struct pollfd*, nfds_t, int)>("poll");
  if (waits.fetch_add(1) % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  return next(fds, count, timeout_ms);
}
