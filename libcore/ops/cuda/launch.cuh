// Starting kernels one behind the other, and what a kernel does about the one in front of it.
//
// On sm_90 a kernel of a queue that overlaps starts when every block of its predecessor has passed
// AwaitPredecessor, so its launch and the loads of its weights cost no time of their own. Rules:
//  * every block of every kernel calls AwaitPredecessor, also one that has nothing to do: a kernel
//    that ended without it would let its successor see memory that is still being written;
//  * in front of that call a kernel reads weights, arguments, and results of the predecessor's
//    predecessor, which has ended by then; it writes nothing.
#pragma once

#include "libcore/device/overlap.cuh"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/ops/cuda/ptx.cuh"

namespace tp2::cuda {

using device::Launch;

}  // namespace tp2::cuda
