#!/usr/bin/env python3
"""From the withdrawal of the permit to SIGTERM in the job: the job writes the time at which it got the signal.
Withdrawn in turn by replacement, removal, truncation and a renamed directory.

usage: permit_latency.py BIN_DIR [--runs N]
promise: p50 at most 0.15 s, maximum 0.5 s
"""
import argparse
import os
import sys
import time

import bench

JOB = '''
import os, signal, time
def told(number, frame):
    print("told", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, told)
print("run" "ning", flush=True)
time.sleep(30)
'''


WAYS = ('replaced', 'removed', 'truncated', 'moved')


def one(bin_dir, number):
    lane = bench.Bench(bin_dir)
    try:
        process = lane.start_waiting(JOB)
        time.sleep(0.1 + (number * 37 % 200) / 1000)  # at any phase of the poll
        ways = (lambda: lane.set_permit('owner=SOMEBODY\n'), lambda: os.unlink(lane.permit),
                lambda: os.truncate(lane.permit, 0), lambda: os.rename(lane.folder, lane.folder + '.old'))
        begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        ways[number % len(ways)]()
        out, _ = lane.finish(process, 123)
        return float(out.decode().split('told ')[1].split()[0]) - begin
    finally:
        lane.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bin_dir')
    parser.add_argument('--runs', type=int, default=200)
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    took = [one(arguments.bin_dir, number) for number in range(arguments.runs)]
    for way, name in enumerate(WAYS):
        part = sorted(took[way::len(WAYS)])
        if part:
            print(f'{name:<10} p50 {part[len(part) // 2] * 1e3:6.1f} ms  maximum {part[-1] * 1e3:6.1f} ms')
    took.sort()
    p50, worst = took[len(took) // 2], took[-1]
    print(f'{arguments.runs} withdrawals: permit to SIGTERM p50 {p50 * 1e3:.0f} ms, p90 '
          f'{took[len(took) * 9 // 10] * 1e3:.0f} ms, maximum {worst * 1e3:.0f} ms; load {load_before:.1f} to '
          f'{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores')
    is_kept = p50 <= 0.15 and worst <= 0.5
    print(f'promised p50 at most 150 ms, maximum 500 ms: {"kept" if is_kept else "BROKEN"}')
    return 0 if is_kept else 1


if __name__ == '__main__':
    sys.exit(main())
