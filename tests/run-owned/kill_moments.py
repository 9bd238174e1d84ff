#!/usr/bin/env python3
"""SIGKILL of run-owned at random moments of its life: before the job, while it runs, while it is being stopped, while
the last files are written. The job double-forks into a session of its own and ignores TERM. Nothing of it may be alive
when a lock is free.

usage: kill_moments.py BIN_DIR [--runs N] [--seed N] [--cgroup auto|off] [--timed]
  --timed   also: nothing of the job is alive 1 s after the kill; prints the times
"""
import argparse
import collections
import os
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
        time.sleep({life_s})
    os._exit(0)
print("run" "ning", flush=True)
time.sleep({life_s})
'''
# Every second job is ended by the cap, with TERM after some 100 ms and KILL 100 ms later.
STOPPED = ('--cap-ms', '400', '--grace-ms', '100', '--kill-margin-ms', '200')
LATEST_S = 0.4


def phase_of(text):
    if 'verdict ' in text:
        return 'at its end'
    if 'TERM and CONT' in text:
        return 'stopping its job'
    return 'with a running job' if 'job started' in text else 'before its job'


def one(lane, number, delay_s, arguments):
    """Seconds from the kill to an empty process table and free locks, and what the kill interrupted."""
    marker = f'moment-{lane.root}-{number}.'
    log = lane.path(f'log{number}')
    options = ('--cgroup', arguments.cgroup) + (STOPPED if number % 2 else ())
    process = lane.start(JOB.format(marker=marker, life_s=30), log=log, options=options)
    time.sleep(delay_s)
    process.kill()
    begin = time.monotonic()
    process.wait()

    phase = phase_of(lane.log_text(log))
    gone_s = None
    while True:
        # In this order: what is alive now was alive when the lock is then seen free.
        is_free = not lane.is_locked(0) and not lane.is_locked(1)
        # run-owned, its guard and its helper carry the job's text in their command lines, and this option.
        alive = bench.pids_with(marker, without='--lock-dir')
        passed_s = time.monotonic() - begin
        if is_free:
            bench.check(not alive, f'run {number}: locks free while {alive} live')
        if not alive and gone_s is None:
            gone_s = passed_s
        if not alive and is_free:
            return gone_s, passed_s, phase
        bench.check(not arguments.timed or passed_s < 1.0 or not alive, f'run {number}: {alive} alive after 1 s')
        bench.check(passed_s < 60, f'run {number}: locks held and {alive} alive after 60 s')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bin_dir')
    parser.add_argument('--runs', type=int, default=200)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cgroup', default='auto')
    parser.add_argument('--timed', action='store_true')
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    lane = bench.Bench(arguments.bin_dir)
    load_before = os.getloadavg()[0]
    results, phases = [], collections.Counter()
    try:
        for number in range(arguments.runs):
            gone_s, free_s, phase = one(lane, number, moments.uniform(0, LATEST_S), arguments)
            results.append((gone_s, free_s))
            phases[phase] += 1
    finally:
        lane.close()
    print(f'{arguments.runs} kills, control group {arguments.cgroup}: ' +
          ', '.join(f'{count} {phase}' for phase, count in phases.most_common()))
    print('no lock was free while a process of a job lived')
    for column, what in enumerate(('nothing of the job alive', 'locks free')):
        took = sorted(result[column] for result in results)
        if arguments.timed:
            ms = [f'{took[len(took) * part // 100] * 1e3:.0f} ms' for part in (50, 99)]
            print(f'{what} after p50 {ms[0]}, p99 {ms[1]}, maximum {took[-1] * 1e3:.0f} ms')
    print(f'load {load_before:.1f} to {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores')
    return 0


if __name__ == '__main__':
    sys.exit(main())
