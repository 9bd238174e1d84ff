"""What the fault tests do to a worker from outside, over scripts/dspark_client.py.

usage: fault_client.py COMMAND ARGUMENTS...
  hold ADDRESS FILE [SECRET_FILE]  opens a slot, creates FILE, sits there
  rounds ADDRESS COUNT             drafts of a fixed workload, one line a round
  return ADDRESS SECONDS           the same workload over and over; survives one restart of the worker and
                                   prints the ms from its first failure to its first good STEP
  drain ADDRESS                    STEPs until a reply says DRAINING, closes its slot; prints the STEPs
  fail ADDRESS FAULT COUNT         writes ./fault, STEPs COUNT times; each must be INTERNAL, or UNHEALTHY
                                   for poison; prints the slowest in ms
  free ADMIN SECONDS               waits until no slot is open; prints the ms
  noise ADMIN SECONDS              100 scrapes a second and nonsense between them; prints the scrapes
"""
import json
import os
import random
import socket
import sys
import time
import urllib.request

import numpy as np
from dspark_client import Client, Refused, read_secret, to_bf16

DRAINING = 2


class Watching(Client):
    """Remembers the flags of the last reply."""
    flags = 0

    def call_raw(self, *arguments, **options):
        self.flags, status, body = super().call_raw(*arguments, **options)
        return self.flags, status, body


def now_ms():
    return time.monotonic() * 1000


def rounds_of(worker, count):
    values = np.random.default_rng(7)
    slot = worker.open(5)
    blocks = []
    for number in range(count):
        rows = to_bf16(values.uniform(-1, 1, (4, worker.row_values)))
        blocks.append(worker.step([slot.part(rows, number)])[0].bits.hex())
    slot.close()
    return blocks


def hold(address, file, secret=None):
    client = Client(address, secret=read_secret(secret) if secret else None)
    client.open()
    open(file, 'w').close()
    time.sleep(600)


def rounds(address, count):
    with Client(address) as worker:
        print('\n'.join(rounds_of(worker, int(count))))


def back(address, seconds):
    expected, failed, gap, deadline = None, None, None, now_ms() + 1000 * float(seconds)
    pause = 0.05
    while now_ms() < deadline and gap is None:
        try:
            with Client(address, timeout_s=5) as worker:
                while now_ms() < deadline:
                    drafts = rounds_of(worker, 4)
                    expected = expected or drafts
                    assert drafts == expected, 'other drafts'
                    if failed is not None:
                        gap = now_ms() - failed
                        break
        except (OSError, EOFError, Refused):
            failed = failed or now_ms()
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, 2)
    assert gap is not None, 'the worker did not fail and come back'
    print(f'{gap:.0f}')


def drain(address):
    with Watching(address) as worker:
        slot, steps = worker.open(), 0
        row = [[0] * worker.row_values]
        while not worker.flags & DRAINING:
            worker.step([slot.part(row, 1)])
            steps += 1
        worker.step([slot.part(row, 1)])  # a drain finishes what is open
        slot.close()
    print(steps)


def fail(address, fault, count):
    with Client(address) as worker:
        slot = worker.open()
        row = [[0] * worker.row_values]
        worker.step([slot.part(row, 1)])
        with open('fault.new', 'w') as file:
            file.write(f'{fault} {count}\n')
        os.rename('fault.new', 'fault')
        slowest = 0
        for _ in range(int(count)):
            began = now_ms()
            try:
                worker.step([slot.part(row, 1)])
                raise SystemExit(f'a STEP with {fault} drafted')
            except Refused as refused:
                assert refused.code == ('UNHEALTHY' if fault == 'poison' else 'INTERNAL'), refused
            slowest = max(slowest, now_ms() - began)
    print(f'{slowest:.0f}')


def free(admin, seconds):
    began = now_ms()
    while now_ms() - began < 1000 * float(seconds):
        status = json.load(urllib.request.urlopen(f'http://{admin}/status', timeout=5))
        if all(slot['state'] == 'FREE' for slot in status['slots']):
            return print(f'{now_ms() - began:.0f}')
        time.sleep(0.005)
    raise SystemExit('slots stay open')


def noise(admin, seconds):
    host, port = admin.rsplit(':', 1)
    deadline, scrapes = now_ms() + 1000 * float(seconds), 0
    while now_ms() < deadline:
        assert b'dspark_steps_total' in urllib.request.urlopen(f'http://{admin}/metrics', timeout=5).read()
        scrapes += 1
        with socket.create_connection((host, int(port)), timeout=5) as nonsense:
            nonsense.sendall(random.choice([b'\r\n', b'GET ' + b'/' * 9000, os.urandom(200), b'POST / HTTP/1.1\r\n']))
        time.sleep(0.01)
    print(scrapes)


if __name__ == '__main__':
    commands = {'hold': hold, 'rounds': rounds, 'return': back, 'drain': drain, 'fail': fail, 'free': free,
                'noise': noise}
    commands[sys.argv[1]](*sys.argv[2:])
