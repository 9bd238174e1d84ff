#!/usr/bin/env python3
"""SIGKILL of run-owned at random moments of its life: nothing of the job alive after 1 s, and no lock
free while something of it lives. The job double-forks into a session of its own and ignores TERM.

usage: kill_moments.py BIN_DIR [--runs N] [--seed N] [--cgroup auto|off]
"""
import argparse
import random
import sys
import time

import bench

JOB = '''"{marker}"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(30)
    os._exit(0)
print("run" "ning", flush=True)
time.sleep(30)
'''


def one(lane, number, delay_s, cgroup):
    """Seconds from the kill to an empty process table and to free locks, and whether the job ran."""
    marker = f'moment-{lane.root}-{number}'
    log = lane.path(f'log{number}')
    process = lane.start(JOB.format(marker=marker), log=log, options=('--cgroup', cgroup))
    time.sleep(delay_s)
    process.kill()
    begin = time.monotonic()
    process.wait()
    # run-owned and its guard carry the job's text in their command lines; they are told apart by the option.
    def job_pids():
        return [pid for pid in bench.pids_with(marker)
                if b'--lock-dir' not in open(f'/proc/{pid}/cmdline', 'rb').read()]
    had_job = 'job started' in lane.log_text(log)
    while True:
        # In this order: what is alive now was alive when the lock is then seen free.
        is_free = not lane.is_locked(0) and not lane.is_locked(1)
        try:
            alive = job_pids()
        except OSError:
            continue
        if is_free:
            bench.check(not alive, f'run {number}: locks free while {alive} live')
        if not alive and is_free:
            return time.monotonic() - begin, had_job
        bench.check(time.monotonic() - begin < 1.0 or not alive, f'run {number}: {alive} alive after 1 s')
        bench.check(time.monotonic() - begin < 3.0, f'run {number}: locks held after 3 s')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bin_dir')
    parser.add_argument('--runs', type=int, default=200)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cgroup', default='auto')
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    lane = bench.Bench(arguments.bin_dir)
    took, with_job = [], 0
    try:
        for number in range(arguments.runs):
            seconds, had_job = one(lane, number, moments.uniform(0, 0.25), arguments.cgroup)
            took.append(seconds)
            with_job += had_job
    finally:
        lane.close()
    took.sort()
    print(f'{arguments.runs} kills ({with_job} with a running job), control group {arguments.cgroup}: all gone and '
          f'locks free after p50 {took[len(took) // 2] * 1e3:.0f} ms, maximum {took[-1] * 1e3:.0f} ms')
    return 0


if __name__ == '__main__':
    sys.exit(main())
