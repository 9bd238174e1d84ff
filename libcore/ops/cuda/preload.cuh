// What an entry of kernel_list.inc means: libcore/device/preload.cuh.
#pragma once

#include "libcore/device/preload.cuh"
