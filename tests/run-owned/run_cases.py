#!/usr/bin/env python3
"""Runs the edge cases of run-owned against the built tool, several at a time, and holds them against the table of rows
in README.md.

usage: run_cases.py BIN_DIR [--only ROW_OR_NAME]... [--timed] [--jobs N] [--list] [--check-table]
  --only         rows by number, cases by a part of their name
  --timed        also what judges moments: for a machine with nothing else to do
  --check-table  runs nothing: every row has its tests and README.md names exactly them
exit: 0 all held, 77 all were skipped for what the machine lacks, 1 otherwise
"""
import argparse
import collections
import concurrent.futures
import sys
import time
import traceback

import bench
import card_cases
import clock_cases
import lifecycle_cases
import lock_cases
import output_cases
import permit_cases
import rows
import stubborn_cases
from cases import CASES

MODULES = (permit_cases, lock_cases, lifecycle_cases, stubborn_cases, clock_cases, card_cases, output_cases)
SKIPPED = 77


def run_one(bin_dir, case, judges_time):
    begin = time.monotonic()
    verdict, detail, exits = 'ok', '', set()
    lane = None
    try:
        lane = bench.Bench(bin_dir, judges_time=judges_time)
        case.function(lane)
    except bench.Skip as skip:
        verdict, detail = 'skipped', str(skip)
    except Exception:  # every kind of failure is one case's failure
        verdict, detail = 'FAILED', traceback.format_exc()
    try:
        if lane:
            lane.close()
            exits = lane.exits()
    except Exception:
        verdict, detail = 'FAILED', detail + traceback.format_exc()
    return case, verdict, detail, exits, time.monotonic() - begin


def run_all(bin_dir, chosen, judges_time, jobs):
    """Counts of verdicts; per row the codes that were seen; rows with a skipped case."""
    counts = collections.Counter()
    exits = collections.defaultdict(set)
    incomplete = set()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_one, bin_dir, case, judges_time) for case in chosen]
        for future in concurrent.futures.as_completed(futures):
            case, verdict, detail, seen, took = future.result()
            counts[verdict] += 1
            exits[case.row] |= seen
            if verdict != 'ok':
                incomplete.add(case.row)
            print(f'{verdict:<8} {took:5.1f} s  {case.name:<36} {case.claim}', flush=True)
            if detail:
                print('      ' + detail.replace('\n', '\n      '), flush=True)
    return counts, exits, incomplete


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bin_dir')
    parser.add_argument('--only', action='append', default=[])
    parser.add_argument('--timed', action='store_true')
    parser.add_argument('--jobs', type=int, default=4)
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--check-table', action='store_true')
    arguments = parser.parse_args()
    table = rows.read_table()
    if arguments.check_table:
        complaints = rows.complaints(table, CASES)
        print('\n'.join(complaints) or f'# {len(table)} rows, {len(CASES)} cases')
        return 1 if complaints else 0
    chosen = [case for case in CASES if (arguments.timed or not case.timed)
              and (not arguments.only or case.row in arguments.only
                   or any(word in case.name for word in arguments.only if not word.isdigit() and word != '-'))]
    if arguments.list:
        for case in chosen:
            print(f'{case.name:<36} {case.claim}')
        return 0
    begin = time.monotonic()
    counts, exits, incomplete = run_all(arguments.bin_dir, chosen, arguments.timed, arguments.jobs)
    is_whole_row = not arguments.only or all(word.isdigit() for word in arguments.only)
    unseen = [text for row in sorted(exits) if is_whole_row and row not in incomplete
              for text in rows.unseen_exits(table, row, exits[row])]
    for text in unseen:
        print(f'FAILED   {text}')
    print(f'# {counts["ok"]} ok, {counts["skipped"]} skipped, {counts["FAILED"]} failed in '
          f'{time.monotonic() - begin:.0f} s')
    if counts['FAILED'] or unseen or not chosen:
        return 1
    return 0 if counts['ok'] else SKIPPED


if __name__ == '__main__':
    assert all(MODULES)
    sys.exit(main())
