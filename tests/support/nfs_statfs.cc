// Preloaded in front of a program: every open file is on a network file system, as far as fstatfs
// knows. Mounting a real one needs a server.
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int fstatfs(int fd, struct statfs* system) {
  constexpr long kNfsMagic = 0x6969;
  const int code = static_cast<int>(::syscall(SYS_fstatfs, fd, system));
  if (code == 0) system->f_type = kNfsMagic;
  return code;
}
