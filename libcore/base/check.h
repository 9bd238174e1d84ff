// TP2_CHECK: programmer errors only. Input, files, sockets and drivers are reported through Status
// instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TP2_CHECK(condition)                                                                \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", __FILE__, __LINE__, \
                   #condition);                                                             \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
