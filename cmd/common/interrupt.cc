#include "cmd/common/interrupt.h"

#include <signal.h>

#include <initializer_list>

namespace tp2::cmd {
namespace {

volatile sig_atomic_t interrupt_signal = 0;

void Note(int number) { interrupt_signal = number; }

}  // namespace

void WatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

int InterruptSignal() { return interrupt_signal; }

}  // namespace tp2::cmd
