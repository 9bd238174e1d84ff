#!/usr/bin/env python3
"""Which accesses the collective kernels make, read off their PTX: the memory model's conditions that
no test on a card can show, because a card's own L2 often behaves as if they held.

usage: ptx_lint.py NVCC SOURCE_DIR    compiles pair_kernels.cu to PTX and checks every kernel; then
                                      plants violations, each of which must be found
"""
import re
import subprocess
import sys
import tempfile

# The one access that is not of system scope: blocks of one card count their arrivals.
ARRIVAL = 'atom.relaxed.gpu.global.add.u32'
LATCH = 'atom.acq_rel.sys.global.or.b32'
LINE_STORE, LINE_LOAD = 'st.relaxed.sys.global.b128', 'ld.relaxed.sys.global.b128'
FLAG_STORE, FLAG_LOAD = 'st.release.sys.global.u32', 'ld.acquire.sys.global.u32'
ACK_PAYLOAD = ('st.global.v4.u32', 'ld.global.cg.v4.u32')
ORDERED = re.compile(r'\.(relaxed|acquire|release|acq_rel|sc|volatile|mmio)\b')
HEAD = re.compile(r'^(?:\.visible |\.weak )?\.(?:entry|func)\s*(?:\([^)]*\)\s*)?(\w+)', re.M)
FENCE = re.compile(r'^(fence|membar)\b')
ACCESS = re.compile(r'^\s*(?:@%?\w+\s+)?((?:ld|st|atom|red|fence|membar)\.[\w.:]+)', re.M)


def functions(ptx):
    """Mangled name -> accesses of every entry and function."""
    heads = list(HEAD.finditer(ptx))
    ends = [head.start() for head in heads[1:]] + [len(ptx)]
    return {head.group(1): ACCESS.findall(ptx[head.end():end]) for head, end in zip(heads, ends)}


def complaints_of(name, accesses):
    is_line, is_ack = 'LineProtocol' in name, 'AckProtocol' in name
    for access in set(accesses):
        is_fence = FENCE.match(access)
        if (ORDERED.search(access) or is_fence) and '.sys' not in access and access != ARRIVAL:
            yield f'{access}: not of system scope'
        if is_fence and 'CloseStep' not in name:
            yield f'{access}: a fence outside the closing exchange'
        if re.match(r'(atom|red)\.', access) and access not in (ARRIVAL, LATCH):
            yield f'{access}: an atomic that is neither an arrival nor a latched error'
        # The closing exchange leaves its status in host memory: four plain words.
        is_outcome = 'CloseStep' in name and access == ACK_PAYLOAD[0]
        if is_line and access in (FLAG_LOAD, *ACK_PAYLOAD) and not is_outcome:
            yield f'{access}: lines need neither flags nor plain payload'
        # Other views cannot tell the rank's own words from a peer's when they are compiled.
        if is_line and access == FLAG_STORE and 'PairView' in name:
            yield f'{access}: a pair has nothing to release'
    if is_line and not {LINE_STORE, LINE_LOAD} <= set(accesses):
        yield 'no 16-byte line is stored or loaded'
    if is_ack and not {FLAG_STORE, FLAG_LOAD} <= set(accesses):
        yield 'no flag is released or acquired'


def check(ptx):
    found = functions(ptx)
    complaints = [f'{name}: {text}' for name, accesses in found.items()
                  for text in complaints_of(name, accesses)]
    if not any('LineProtocol' in name for name in found) or not any(
            'AckProtocol' in name for name in found):
        complaints.append('kernels of a protocol are missing')
    if not any(LATCH in accesses for accesses in found.values()):
        complaints.append('errors are latched by no atomic of system scope')
    return len(found), complaints


# What must be found when it is planted.
MUTANTS = {
    'lines of device scope': (LINE_STORE, 'st.relaxed.gpu.global.b128'),
    'polls of device scope': (LINE_LOAD, 'ld.relaxed.gpu.global.b128'),
    'lines of two accesses': (LINE_STORE, 'st.relaxed.sys.global.v2.u64'),
    'flags of device scope': (FLAG_STORE, 'st.release.gpu.global.u32'),
    'flags that publish nothing': (FLAG_STORE, 'st.relaxed.sys.global.u32'),
    'flags that acquire nothing': (FLAG_LOAD, 'ld.relaxed.sys.global.u32'),
    'errors of device scope': (LATCH, 'atom.acq_rel.gpu.global.or.b32'),
    'plain lines': (LINE_STORE, 'st.global.v4.u32'),
    'a fence per line': (LINE_LOAD, 'fence.acq_rel.sys;\n ld.relaxed.sys.global.b128'),
}


def main(nvcc, source_dir):
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/pair.ptx'
        subprocess.run([nvcc, '-std=c++20', '-O3', '-arch=sm_90', '--expt-relaxed-constexpr',
                        '-fmad=false', f'-I{source_dir}', '-ptx', '-o', path,
                        f'{source_dir}/libcore/collectives/cuda/pair_kernels.cu'], check=True)
        with open(path) as file:
            ptx = file.read()
    count, complaints = check(ptx)
    for text in complaints:
        print(text)
    for name, (before, after) in MUTANTS.items():
        if not check(ptx.replace(before, after))[1]:
            complaints.append(name)
            print(f'not found when planted: {name}')
    print(f'{count} functions, {len(MUTANTS)} planted violations, {len(complaints)} complaints')
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:3]))
