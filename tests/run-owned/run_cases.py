#!/usr/bin/env python3
"""Runs the edge cases of run-owned against the built tool, several at a time.

usage: run_cases.py BIN_DIR [--only ROW_OR_NAME]... [--jobs N] [--list]
exit: 0 all held (skipped ones name what is missing), 1 otherwise
"""
import argparse
import collections
import concurrent.futures
import sys
import time
import traceback

import bench
import card_cases
import lifecycle_cases
import lock_cases
import output_cases
import permit_cases
from cases import CASES

MODULES = (permit_cases, lock_cases, lifecycle_cases, card_cases, output_cases)
ROWS = [str(row) for row in range(1, 55)]


def run_one(bin_dir, row, claim, function):
    begin = time.monotonic()
    verdict, detail = 'ok', ''
    lane = None
    try:
        lane = bench.Bench(bin_dir)
        function(lane)
    except bench.Skip as skip:
        verdict, detail = 'skipped', str(skip)
    except Exception:  # every kind of failure is one case's failure
        verdict, detail = 'FAILED', traceback.format_exc()
    try:
        if lane:
            lane.close()
    except Exception:
        verdict, detail = 'FAILED', detail + traceback.format_exc()
    return row, claim, verdict, detail, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bin_dir')
    parser.add_argument('--only', action='append', default=[])
    parser.add_argument('--jobs', type=int, default=4)
    parser.add_argument('--list', action='store_true')
    arguments = parser.parse_args()
    chosen = [entry for entry in CASES if not arguments.only or entry[0] in arguments.only
              or any(word in entry[1] for word in arguments.only if not word.isdigit())]
    if arguments.list:
        for row, claim, _ in chosen:
            print(f'{row:>4}  {claim}')
        return 0
    missing = [row for row in ROWS if row not in {entry[0] for entry in CASES}]
    counts = collections.Counter()
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(run_one, arguments.bin_dir, *entry) for entry in chosen]
        for future in concurrent.futures.as_completed(futures):
            row, claim, verdict, detail, took = future.result()
            counts[verdict] += 1
            print(f'{row:>4}  {verdict:<8} {took:5.1f} s  {claim}', flush=True)
            if detail:
                print('      ' + detail.replace('\n', '\n      '), flush=True)
    print(f'# {counts["ok"]} ok, {counts["skipped"]} skipped, {counts["FAILED"]} failed in '
          f'{time.monotonic() - begin:.0f} s; rows without a test: {", ".join(missing) or "none"}')
    return 1 if counts['FAILED'] or missing else 0


if __name__ == '__main__':
    assert all(MODULES)
    sys.exit(main())
