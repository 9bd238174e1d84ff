// Preloaded in front of a program: moves its wall clock or its boot-time clock by what the file
// beside the library, `<library>.shift`, says: "WALL_S BOOT_S". Nothing on the machine changes.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

extern "C" int clock_gettime(clockid_t clock, struct timespec* now) {
  const int code = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (code != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME)) return code;
  static const std::string path = [] {
    Dl_info info = {};
    ::dladdr(reinterpret_cast<void*>(&clock_gettime), &info);
    return std::string(info.dli_fname) + ".shift";
  }();
  long wall_s = 0;
  long boot_s = 0;
  if (FILE* file = std::fopen(path.c_str(), "r")) {
    if (std::fscanf(file, "%ld %ld", &wall_s, &boot_s) != 2) wall_s = boot_s = 0;
    std::fclose(file);
  }
  now->tv_sec += clock == CLOCK_REALTIME ? wall_s : boot_s;
  return code;
}
