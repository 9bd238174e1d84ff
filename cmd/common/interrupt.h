// The first SIGINT or SIGTERM lets the current cell end, the second one ends the process.
#pragma once

namespace tp2::cmd {

void WatchInterrupts();
// The signal that asked to stop; 0 when none did.
int InterruptSignal();

}  // namespace tp2::cmd
