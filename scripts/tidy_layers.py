"""Layering and include rules of tidy.py: the tables here are in force (CONTRIBUTING.md)."""
import re

import tidy_cpp
from tidy_core import rule

# Folder -> layer. An include goes down; sideways and upwards only where SIDEWAYS says so.
LAYERS = {'base': 0, 'math': 0, 'model': 1, 'contract': 1, 'report': 1, 'config': 1,
          'checkpoint': 2, 'exl3': 2, 'telemetry': 2, 'capture': 2, 'shard': 3, 'tuning': 3, 'device': 3,
          'ops': 4, 'collectives': 4, 'graphs': 5, 'transport': 5, 'drafter': 6,
          'server': 7, 'client': 7, 'parity': 7, 'bench': 7}
# Loaded weights are EXL3 matrices; a session's limits and windows and a worker's longest sequence are
# the model's; a capture is made of safetensors files.
SIDEWAYS = {('checkpoint', 'exl3'), ('contract', 'model'), ('config', 'model'),
            ('capture', 'checkpoint')}
# Folders that may see less than everything below them.
ONLY = {'math': r'math/', 'base': r'base/', 'transport': r'(transport|base)/',
        'telemetry': r'(telemetry|base)/', 'contract': r'(contract|base|model)/',
        'client': r'(client|base|math|model|contract|transport)/|drafter/step_engine\.h',
        'server': r'(server|base|math|model|contract|report|config|telemetry|transport)/'
                  r'|drafter/step_engine\.h'}
# Nothing below the drafter knows what a request is.
REQUEST_BLIND = ('shard', 'tuning', 'device', 'ops', 'collectives', 'graphs', 'checkpoint', 'exl3',
                 'capture')


def folder_of(path):
    parts = path.split('/')
    return parts[1] if parts[0] == 'libcore' and len(parts) > 2 else None


def layering_complaint(path, target):
    """Why `path` (libcore/X/...) may not include `target`, or None."""
    source, wanted = folder_of(path), folder_of(target)
    if not target.startswith('libcore/'):
        return f'libcore may not include {target}'
    if source not in LAYERS or wanted not in LAYERS:
        return f'no layer is known for {source if source not in LAYERS else wanted}; see LAYERS'
    if source in ONLY and not re.match(ONLY[source], target[len('libcore/'):]):
        return f'{source} may not see {target[len("libcore/"):]}'
    if source in REQUEST_BLIND and wanted in ('contract', 'transport'):
        return f'{source} lies below the drafter and may not know requests ({wanted})'
    if source == 'drafter' and wanted == 'transport':
        return 'the drafter knows requests, not sockets'
    if source == wanted:
        halves = {part for part in ('ops/cpu/', 'ops/cuda/') if part in path or part in target}
        return 'ops/cpu and ops/cuda may not include each other' if len(halves) == 2 else None
    if LAYERS[wanted] >= LAYERS[source] and (source, wanted) not in SIDEWAYS:
        return f'{source} (layer {LAYERS[source]}) may not see {wanted} (layer {LAYERS[wanted]})'
    return None


@rule('layering', 'includes point downwards: a part can be read and tested without what uses it',
      ('libcore/base/a.h', '#include "libcore/model/b.h"\n'),
      ('libcore/exl3/a.cc', '#include "libcore/checkpoint/b.h"\n'),
      ('libcore/ops/cpu/a.cc', '#include "libcore/ops/cuda/b.h"\n'),
      ('libcore/transport/a.cc', '#include "libcore/contract/b.h"\n'),
      ('libcore/contract/a.cc', '#include "libcore/math/b.h"\n'),
      ('libcore/server/a.cc', '#include "libcore/drafter/slot_table.h"\n'),
      ('libcore/exl3/a.cc', '#include "cmd/dspark-pack/flags.h"\n'),
      ('cmd/a/run.cc', '#include "cmd/b/run.h"\n'))
def check_layering(tree):
    for path in tree.cpp('libcore/', 'cmd/'):
        for number, kind, target in tidy_cpp.includes(tree.text(path)):
            if kind != '"' or not target.startswith(('libcore/', 'cmd/', 'tests/')):
                continue
            if path.startswith('libcore/'):
                complaint = layering_complaint(path, target)
            else:
                own = '/'.join(path.split('/')[:2]) + '/'
                complaint = None if target.startswith(('libcore/', 'cmd/common/', own)) else \
                    f'a tool may include libcore, cmd/common and itself, not {target}'
            if complaint:
                yield path, number, complaint


# (file pattern, banned include pattern, reason): the second table of who may know what.
CUDA_HEADER = r'(cuda|cooperative_groups|nvml|nccl|mma\.h)'
# p2p-lifecycle qualifies CUDA itself: allocators, captures, streams.
CUDA_HOMES = (r'(?!libcore/(device|collectives|ops/cuda|graphs)/|libcore/drafter/drafter_cuda\.cc'
              r'|libcore/bench/\w+_cuda\.cc|cmd/p2p-lifecycle/|tests/)')
INCLUDE_BANS = [
    (r'libcore/math/.*\.h$', r'(?!(cstdint|cmath|bit|cstring|limits)$|libcore/math/)',
     'math is compiled for host and device: <cstdint> <cmath> <bit> <cstring> <limits> only'),
    (r'libcore/collectives/(protocol|line_protocol|ack_protocol|operations)\.h$',
     r'(?!(bit|cstdint)$|libcore/math/|libcore/collectives/(line_|ack_)?protocol\.h$)',
     'the protocols see the world through their policy only'),
    (r'libcore/contract/', r'(sys/|netinet/|arpa/|chrono|thread|time\.h|' + CUDA_HEADER + ')',
     'the contract is bytes in, values out: no sockets, time or CUDA'),
    (r'libcore/ops/cuda/', r'(absl/container|CLI/|fstream|filesystem)',
     'kernels know no containers of absl, no flags and no files'),
    (r'(?!cmd/[^/]+/flags\.|cmd/common/)', r'CLI/',
     'CLI11 throws and compiles slowly: cmd/*/flags.* and cmd/common only'),
    (r'(?!libcore/config/)', r'yaml-cpp', 'yaml-cpp throws: libcore/config only'),
    (r'cmd/[^/]+/flags\.', r'(libcore/(checkpoint|device)/|' + CUDA_HEADER + ')',
     'flags are parsed before anything is opened'),
    (CUDA_HOMES, CUDA_HEADER, 'CUDA is known to device, collectives, ops/cuda and graphs only'),
    (r'', r'(absl/synchronization/mutex\.h|ranges$|format$|expected$)',
     'missing or misbehaving with g++ 12, clang 14 or Debian\'s Abseil'),
]


@rule('include', 'a file knows only what its kind may know',
      ('libcore/math/a.h', '#include <vector>\n'),
      ('libcore/collectives/protocol.h', '#include <atomic>\n'),
      ('libcore/collectives/ack_protocol.h', '#include <thread>\n'),
      ('libcore/collectives/operations.h', '#include "libcore/collectives/host_sys.h"\n'),
      ('libcore/contract/a.cc', '#include <sys/socket.h>\n'),
      ('libcore/ops/cuda/a.cu', '#include "absl/container/flat_hash_map.h"\n'),
      ('cmd/a/run.cc', '#include "CLI/CLI.hpp"\n'),
      ('libcore/model/a.cc', '#include "yaml-cpp/yaml.h"\n'),
      ('cmd/a/flags.cc', '#include "libcore/checkpoint/loader.h"\n'),
      ('libcore/model/a.cc', '#include <cuda_runtime.h>\n'),
      ('libcore/base/a.h', '#include "absl/synchronization/mutex.h"\n'),
      ('libcore/base/a.cc', '#include "b.h"\n'))
def check_includes(tree):
    for path in tree.cpp():
        for number, kind, target in tidy_cpp.includes(tree.text(path)):
            for files, banned, reason in INCLUDE_BANS:
                if re.match(files, path) and re.match(banned, target):
                    yield path, number, f'{target}: {reason}'
            if kind == '"' and '/' not in target and target != 'build_info_values.h':
                yield path, number, f'{target}: our includes start at the top of the tree'
