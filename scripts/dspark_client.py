#!/usr/bin/python3
"""A client of dspark-serve in one file: the wire contract DSPK/1 with NumPy and the standard library.

Written from the contract, not from the C++ client, so that each checks the other. As a module:

    from dspark_client import Client, to_bf16      # README.md drafts with it in 15 lines

As a program it holds a worker against the contract's promises, by the names dspark-selftest uses:

    dspark_client.py contract HOST:PORT [--secret-file FILE] [--identity HEX] [--rounds N] [--seed N]

It has no model: where dspark-selftest compares with an engine of its own, it compares two slots of the
worker that were given the same rows in different ways, which must draft the same bits. A Client without
`identity` takes whatever checkpoint the worker has. Exit codes: 0 passed, 1 a check failed, 2 usage,
3 no worker.
"""
import argparse
import hmac
import os
import socket
import struct
import sys
from functools import partialmethod

import numpy as np

VERSION, HEADER_BYTES, HELLO_BYTES, PROOF_AT, BLOCK_ROWS, ANY_SLOT = 0x0100, 64, 256, 224, 5, 0xFFFF
HELLO, OPEN, CLOSE, INSERT, STEP, HEALTH, SLOTS, PING, BYE = range(1, 10)
REPLY_BIT, CACHED_REPLY = 0x8000, 4
MARGIN, MAIN_X, WANT_MARGIN, WANT_CONFIDENCE = 1, 2, 1, 2  # features, then STEP flags
TAPS_ROWS, MAX_ROWS_PER_MESSAGE = 1, 128

CODES = dict(enumerate("""OK IDENTITY_MISMATCH CONFIG_MISMATCH VERSION_UNSUPPORTED BAD_FRAME BAD_REQUEST BAD_ENTRY
    STALE_GENERATION NO_SUCH_SLOT SLOTS_FULL POSITION_GAP ROLLBACK_TOO_FAR EMPTY_WINDOW NEEDS_RESYNC BUSY DEADLINE
    DRAINING INTERNAL UNHEALTHY SEQ_CONFLICT SEQ_OLD UNSUPPORTED TOO_LARGE BODY_HASH NONFINITE_ROWS SEQ_GAP CHALLENGE
    NOT_AUTHORIZED TOO_MANY_CONNECTIONS""".split())) | {255: 'NOT_RUN'}


class Refused(Exception):
    """The worker's answer was a code other than OK; `entry_codes` are a STEP's, in request order."""

    def __init__(self, what, code, entry_codes=()):
        self.code, self.entry_codes = CODES.get(code, str(code)), [CODES.get(c, str(c)) for c in entry_codes]
        super().__init__(' '.join([what, self.code] + [c for c in self.entry_codes if c != 'NOT_RUN']))


class BrokenContract(Exception):
    """The peer sent what no worker may send."""


def crc32c(data):
    """Bit by bit, for headers are short."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def to_bf16(values):
    """fp32 to bf16 bits (uint16), to nearest even: the form in which rows travel."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_secret(path):
    if os.stat(path).st_mode & 0o077:
        raise ValueError(f'secret file: expected access for its owner only ({path}); chmod 600 {path}')
    with open(path, 'rb') as file:
        return file.read().rstrip(b' \t\r\n')


def pack_header(kind, session, seq, body_bytes):
    header = struct.pack('<4sHHIIQQI28x', b'DSPK', VERSION, kind, 0, 0, session, seq, body_bytes)
    return header[:12] + struct.pack('<I', crc32c(header)) + header[16:]


def parse_address(text):
    host, _, port = text.rpartition(':')
    if not host or not port.isdigit():
        raise ValueError(f"address: expected HOST:PORT, got '{text}'")
    return host.strip('[]'), int(port)


class Connection:
    """Frames over TCP."""

    def __init__(self, address, timeout_s=30.0):
        self.socket = socket.create_connection(parse_address(address), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        self.file = self.socket.makefile('rb')

    def close(self):
        self.file.close()
        self.socket.close()

    def _read(self, count):
        data = self.file.read(count)
        if len(data) < count:
            raise ConnectionError('the worker ended the connection')
        return data

    def send(self, kind, body=b'', rows=None, session=0, seq=0):
        rows = b'' if rows is None else rows.tobytes()
        self.socket.sendall(pack_header(kind, session, seq, len(body) + len(rows)) + body + rows)

    def receive(self):
        """(type, flags, seq, status, body) of the next reply."""
        raw = self._read(HEADER_BYTES)
        magic, version, kind, flags, crc, _, seq, body_bytes, status = struct.unpack('<4sHHIIQQII24x', raw)
        if magic != b'DSPK' or crc != crc32c(raw[:12] + bytes(4) + raw[16:]) or version != VERSION:
            raise BrokenContract('a reply header with a wrong magic, checksum or version')
        if not kind & REPLY_BIT or body_bytes > 1024:
            raise BrokenContract(f'a reply of type {kind:#x} with {body_bytes} bytes')
        return kind & ~REPLY_BIT, flags, seq, status, self._read(body_bytes)


HELLO_REPLY = struct.Struct('<IHH16s32s32s32sQQIIHHHHHHIII16s16sQIIIHH32s')
HELLO_REPLY_NAMES = ('size version tp instance identity config numerics session features max_body max_reply '
                     'requests n_out slots window_rows ring_rows rows_per_message keepalive_ms idle_ms '
                     'mismatch_field gpu0 gpu1 start_ns vocab hidden max_model_length taps zero proof').split()


def pack_hello(wish, nonce=bytes(32), proof=bytes(32)):
    return struct.pack('<IHH16s32s32sIIHHIHHHHIIQ32s32s32s32s', HELLO_BYTES, wish['lowest_version'],
                       wish['highest_version'], wish['uuid'], wish['identity'], wish['config'], wish['vocab'],
                       wish['hidden'], wish['taps'], 1, wish['taps'] * wish['hidden'] * 2,
                       wish['window_rows'], BLOCK_ROWS, 4, wish['slots'], 0, 1024, wish['features'], bytes(32),
                       b'dspark_client.py', nonce, proof)


def say_hello(connection, wish, secret=None):
    """(status, reply as a dict or None). Answers the worker's challenge and demands its proof."""
    def exchange(nonce, proof):
        connection.send(HELLO, pack_hello(wish, nonce, proof))
        return connection.receive()[3:]

    status, body = exchange(bytes(32), bytes(32))
    nonce, is_challenge = os.urandom(32), CODES.get(status) == 'CHALLENGE'
    if is_challenge and secret is not None:
        signed = pack_hello(wish, nonce)[:PROOF_AT]
        status, body = exchange(nonce, hmac.digest(secret, b'DSPK/1 client' + body + signed, 'sha256'))
    if len(body) != HELLO_BYTES:
        return status, None
    if secret is not None:
        expected = hmac.digest(secret, b'DSPK/1 worker' + nonce + body[:PROOF_AT], 'sha256')
        if not is_challenge or not hmac.compare_digest(expected, body[PROOF_AT:]):
            raise BrokenContract('the worker does not know the secret')
    return status, dict(zip(HELLO_REPLY_NAMES, HELLO_REPLY.unpack(body)))


class Block:
    """What the worker drafted for one request; arrays hold n_out values."""

    def __init__(self, raw, n_out):
        _, self.status, self.window_rows, _, self.generation, self.length = struct.unpack_from('<HHHHQQ', raw)
        self.tokens = np.frombuffer(raw, '<i4', BLOCK_ROWS, 24)[:n_out]
        self.confidence = np.frombuffer(raw, '<f4', BLOCK_ROWS, 48)[:n_out]  # logits
        self.margin = np.frombuffer(raw, '<f4', BLOCK_ROWS, 72)[:n_out]
        self.runner_up = np.frombuffer(raw, '<u4', BLOCK_ROWS, 96)[:n_out]
        self.bits = raw[24:]  # drafts and all that belongs to them, for bitwise comparison


class Slot:
    """One request's context in the worker; `length` is the position of the next row."""

    def __init__(self, client, number, generation, base):
        self.client, self.number, self.generation, self.base, self.length = client, number, generation, base, base

    def insert(self, rows, position=None):
        """Puts rows (uint16 [n, row_values], bf16 bits) at `position`, which may roll back."""
        position = self.length if position is None else position
        length = position + len(rows)
        body = struct.pack('<HHHHQQQI28x', self.number, TAPS_ROWS, len(rows), 0, self.generation, position,
                           length, self.client.row_bytes)
        self.client.call(INSERT, body, rows)
        self.length = length

    def part(self, rows, anchor, position=None, accepted=None):
        """One request of a STEP: insert `rows`, draft after token `anchor`. `accepted`: how many drafts
        of this slot's previous block the target took, for the worker's statistics."""
        rows = np.asarray(rows, np.uint16).reshape(-1, self.client.row_values)
        return Part(self, rows, int(anchor), self.length if position is None else position,
                    0 if accepted is None else accepted + 1)

    def close(self):
        self.client.call(CLOSE, struct.pack('<H6xQ16x', self.number, self.generation))


class Part:
    def __init__(self, slot, rows, anchor, position, accepted_plus_one):
        self.slot, self.rows, self.anchor, self.position = slot, rows, anchor, position
        self.accepted_plus_one, self.length = accepted_plus_one, position + len(rows)
        self.number, self.generation, self.surplus = slot.number, slot.generation, 0

    def pack(self, first_row):
        return struct.pack('<HHIQQQIHxxQ16x', self.number, len(self.rows), self.anchor, self.generation,
                           self.position, self.length, first_row, self.accepted_plus_one,
                           self.length + self.surplus)


class Client:
    """A session with a worker. `identity` (32 bytes, `dspark-pack verify` prints them) pins the
    checkpoint; without it the client takes the worker's."""

    def __init__(self, address, secret=None, identity=None, slots=8, timeout_s=30.0):
        self.session = self.seq = 0
        wish = {'lowest_version': VERSION, 'highest_version': VERSION, 'uuid': os.urandom(16),
                'identity': bytes(32), 'config': bytes(32), 'vocab': 0, 'hidden': 0, 'taps': 0,
                'window_rows': 0, 'slots': slots, 'features': MARGIN | MAIN_X}
        # The first HELLO matches no worker; its refusal says what this one serves.
        self.connection = Connection(address, timeout_s)
        status, served = say_hello(self.connection, wish, secret)
        self.connection.close()
        if served is None:
            raise Refused('HELLO', status)
        if identity is not None and identity != served['identity']:
            raise Refused(f"HELLO: worker has {served['identity'].hex()}, expected {identity.hex()}:", 1)
        wish.update({k: served[k] for k in ('identity', 'config', 'vocab', 'hidden', 'taps', 'window_rows')})
        self.connection = Connection(address, timeout_s)
        status, self.served = say_hello(self.connection, wish, secret)
        if status or self.served is None:
            raise Refused('HELLO', status)
        self.wish, self.session = wish, self.served['session']
        self.vocab, self.row_values = self.served['vocab'], wish['taps'] * wish['hidden']
        self.row_bytes = 2 * self.row_values

    __enter__ = lambda self: self
    __exit__ = lambda self, *_: self.connection.close()

    def call_raw(self, kind, body=b'', rows=None, seq=None):
        """(flags, status, body); no exception for refusals."""
        if seq is None:
            self.seq += kind not in (HEALTH, PING)
            seq = 0 if kind in (HEALTH, PING) else self.seq
        self.connection.send(kind, body, rows, self.session, seq)
        _, flags, got, status, reply = self.connection.receive()
        if got != seq:
            raise BrokenContract(f'a reply to seq {got}, expected {seq}')
        return flags, status, reply

    def call(self, kind, body=b'', rows=None):
        _, status, reply = self.call_raw(kind, body, rows)
        if status:
            raise Refused('INSERT' if kind == INSERT else f'request {kind}', status)
        return reply

    def open(self, base=0, number=ANY_SLOT):
        reply = self.call(OPEN, struct.pack('<H6xQQ8x', number, 0, base))
        number, generation, base = struct.unpack('<H6xQQ8x', reply)
        return Slot(self, number, generation, base)

    def step(self, parts, n_out=BLOCK_ROWS):
        """Inserts and drafts for 1 to 4 parts at once; one Block each."""
        rows = np.concatenate([part.rows for part in parts])
        head = struct.pack('<HHIQIIHHI32x', len(parts), n_out, WANT_MARGIN | WANT_CONFIDENCE, 0, len(rows),
                           self.row_bytes, TAPS_ROWS, 0, 64 + 64 * len(parts))
        first = 0
        for part in parts:
            head += part.pack(first)
            first += len(part.rows)
        _, status, reply = self.call_raw(STEP, head, rows)
        blocks = [Block(reply[64 + 128 * i:192 + 128 * i], n_out) for i in range((len(reply) - 64) // 128)]
        if status:
            raise Refused('STEP', status, [block.status for block in blocks])
        for part, block in zip(parts, blocks):
            part.slot.length = part.length
            if block.length != part.length:
                raise BrokenContract(f'length {block.length} after a STEP, expected {part.length}')
        return blocks


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def close(slots):
    for slot in slots:
        slot.close()


def expect_refusal(call, code, entry=None):
    """`call` must be refused with this code, and this entry code when one is given."""
    try:
        call()
    except Refused as refused:
        is_right = refused.code == code and (entry is None or refused.entry_codes == ['NOT_RUN', entry])
        return expect(is_right, f'expected {code} {entry}, got {refused}')
    raise AssertionError(f'expected {code}, got OK')


class Contract:
    """The promises, one method each, run in the order in which they stand here. Twins are two slots
    that hold the same rows: one is treated, then both must draft the same bits."""

    def __init__(self, options):
        self.options, self.random = options, np.random.default_rng(options.seed)
        self.client = Client(options.address, options.secret, options.identity)

        self.rows = lambda count: to_bf16(self.random.uniform(-1, 1, (count, self.client.row_values)))
        self.anchor = lambda: int(self.random.integers(self.client.vocab))

    def twins(self, count=6, base=10):
        rows, pair = self.rows(count), [self.client.open(base) for _ in range(2)]
        for slot in pair:
            slot.insert(rows)
        return pair

    def expect_equal(self, pair, what):
        """One more row and the same anchor for both: bits equal, alone and in one batch."""
        rows, anchor = self.rows(1), self.anchor()
        together = self.client.step([slot.part(rows, anchor) for slot in pair])
        alone = [self.client.step([slot.part(rows, anchor, slot.length - 1)])[0] for slot in pair]
        expect(len({block.bits for block in together + alone}) == 1, f'{what}: drafts differ')

    def refused_entry(self, entry_code, **changes):
        """A STEP whose second entry has these fields is refused whole, and changes nothing."""
        pair, other = self.twins(), self.client.open(0)
        other.insert(self.rows(2))
        parts = [slot.part(self.rows(1), self.anchor()) for slot in (other, pair[0])]
        vars(parts[1]).update({k: v(parts) if callable(v) else v for k, v in changes.items()})
        expect_refusal(lambda: self.client.step(parts), 'BAD_ENTRY', entry_code)
        self.expect_equal(pair, 'after the refusal')
        close(pair + [other])

    def refused_hello(self, code, **changes):
        connection = Connection(self.options.address)
        status, _ = say_hello(connection, {**self.client.wish, **changes}, self.options.secret)
        expect(CODES.get(status) == code, f'expected {code}, got {CODES.get(status)}')
        expect(connection.file.read(1) == b'', 'the connection is still open after the refusal')

    def check_identity_refusal(self):
        self.refused_hello('IDENTITY_MISMATCH', identity=self.client.wish['identity'][::-1])

    def check_version_refusal(self):
        self.refused_hello('VERSION_UNSUPPORTED', lowest_version=0x0200, highest_version=0x0200)

    def check_config_refusal(self):
        self.refused_hello('CONFIG_MISMATCH', config=self.client.wish['config'][::-1])

    def check_secret_refusal(self):
        wrong = {} if self.options.secret is None else {
            None: 'CHALLENGE', self.options.secret + b'x': 'NOT_AUTHORIZED'}
        for secret, code in wrong.items():
            connection = Connection(self.options.address)
            status, reply = say_hello(connection, self.client.wish, secret)
            expect(CODES.get(status) == code and reply is None, f'expected {code}, got {CODES.get(status)}')
            connection.close()

    def check_rounds_bit_identical(self):
        """Slot A drafts in batches with strangers, B alone; B's rows come by INSERT, one by one."""
        client, a, b = self.client, self.client.open(7), self.client.open(7)
        strangers = [client.open(100 * i) for i in range(3)]
        for stranger in strangers:
            stranger.insert(self.rows(3))
        for number in range(self.options.rounds):
            back = int(self.random.integers(3)) if a.length > a.base + 3 else 0
            position, rows, anchor = a.length - back, self.rows(int(self.random.integers(1, 7))), self.anchor()
            batch = [s.part(self.rows(1), self.anchor()) for s in strangers[:int(self.random.integers(4))]]
            at = int(self.random.integers(len(batch) + 1))
            batch.insert(at, a.part(rows, anchor, position))
            block = client.step(batch)[at]
            for i in range(len(rows)):
                b.insert(rows[i:i + 1], position + i)
            twin, = client.step([b.part([], anchor)])
            expect(block.bits == twin.bits, f'round {number}: {block.tokens} in a batch, {twin.tokens} alone')
        close([a, b] + strangers)

    def check_n_out_prefix(self):
        pair, anchor = self.twins(), self.anchor()
        whole, = self.client.step([pair[0].part([], anchor)])
        for n_out in range(1, BLOCK_ROWS):
            prefix, = self.client.step([pair[0].part([], anchor)], n_out)
            expect(list(prefix.tokens) == list(whole.tokens[:n_out]), f'n_out {n_out}: another prefix')
            expect(list(prefix.margin) == list(whole.margin[:n_out]), f'n_out {n_out}: other margins')
        close(pair)

    def check_rollback(self):
        pair, kept = self.twins(8), self.rows(2)
        self.client.step([pair[0].part(self.rows(4), self.anchor())])
        for slot in pair:  # back over what the STEP put in, and over two rows of before
            slot.insert(kept, slot.base + 6)
        self.expect_equal(pair, 'after a rollback')
        close(pair)

    def check_partial_window(self):
        rows, (slot, twin) = self.rows(1), self.twins()
        block, = self.client.step([slot.part([], 1, slot.base + 1)])
        expect(block.window_rows == 1, f'expected a window of 1 row, got {block.window_rows}')
        slot.insert(rows, slot.base)
        twin.close()
        twin = self.client.open(slot.base)
        twin.insert(rows)
        self.expect_equal([slot, twin], 'a window cut to one row')
        close([slot, twin])

    def check_full_window(self):
        length = self.client.served['ring_rows'] + 20
        rows, pair = self.rows(length), [self.client.open(0), self.client.open(0)]
        for slot, step in zip(pair, (MAX_ROWS_PER_MESSAGE, 7)):
            for begin in range(0, length, step):
                slot.insert(rows[begin:begin + step])
        self.expect_equal(pair, 'a ring that has wrapped')
        close(pair)

    check_bad_entry_atomic = partialmethod(refused_entry, 'BAD_REQUEST', surplus=1)
    check_position_gap = partialmethod(refused_entry, 'POSITION_GAP', position=17, length=18)
    check_rollback_too_far = partialmethod(refused_entry, 'ROLLBACK_TOO_FAR', position=9, length=10)
    check_empty_window = partialmethod(refused_entry, 'EMPTY_WINDOW', position=10, length=10,
                                       rows=lambda parts: parts[1].rows[:0])
    check_duplicate_slot = partialmethod(refused_entry, 'BAD_REQUEST', number=lambda parts: parts[0].number,
                                         generation=lambda parts: parts[0].generation)
    check_bad_anchor = partialmethod(refused_entry, 'BAD_REQUEST', anchor=0xFFFFFFFF)
    check_nonfinite_rows = partialmethod(refused_entry, 'NONFINITE_ROWS',
                                         rows=lambda parts: np.full_like(parts[1].rows, 0x7F80))
    check_bad_feedback = partialmethod(refused_entry, 'BAD_REQUEST', accepted_plus_one=BLOCK_ROWS + 2)

    def check_accepted_feedback(self):
        slot = self.client.open(0)
        for accepted in (None, 0, BLOCK_ROWS):
            self.client.step([slot.part(self.rows(1), 1, accepted=accepted)])
        slot.close()

    def check_stale_generation(self):
        old = self.client.open(0)
        old.close()
        new = self.client.open(0, old.number)
        new.insert(self.rows(3))
        old.length = 3
        expect_refusal(lambda: self.client.step([old.part(self.rows(1), 1)]), 'BAD_ENTRY')
        expect_refusal(lambda: old.insert(self.rows(1)), 'STALE_GENERATION')
        self.client.step([new.part(self.rows(1), 1)])
        new.close()

    def check_seq_replay(self):
        client, slot = self.client, self.client.open(0)
        body = struct.pack('<H6xQ16x', slot.number, slot.generation)
        _, _, first = client.call_raw(CLOSE, body)
        flags, _, again = client.call_raw(CLOSE, body, seq=client.seq)
        expect(flags & CACHED_REPLY and first == again, 'a resend got another reply')

    def check_slots_full(self):
        slots = [self.client.open(0) for _ in range(self.client.served['slots'])]
        expect_refusal(lambda: self.client.open(0), 'SLOTS_FULL')
        close(slots)

    def check_disconnect_frees_slots(self):
        other = Client(self.options.address, self.options.secret, self.options.identity)
        old, slots = other.open(0), []
        other.connection.close()
        while len(slots) < self.client.served['slots']:  # the worker notices on its own time
            try:
                slots.append(self.client.open(0))
            except Refused:
                pass
        old.client = self.client
        expect_refusal(lambda: old.insert(self.rows(1)), 'STALE_GENERATION')
        close(slots)


def run_contract(options):
    contract = Contract(options)
    served = contract.client.served
    print(f"# worker {options.address}: identity {served['identity'].hex()}, vocab {served['vocab']}, "
          f"rows of {contract.client.row_values}, window {served['window_rows']}, {served['slots']} slots")
    checks, failed = [name for name in vars(Contract) if name.startswith('check_')], 0
    for name in checks:
        label = name[len('check_'):].replace('_', '-')
        try:
            getattr(contract, name)()
            print(f'PASS  {label}', flush=True)
        except (AssertionError, Refused, BrokenContract, OSError, struct.error) as error:
            failed += 1
            print(f'FAIL  {label}  {error}', flush=True)
            contract.client.connection.close()
            contract.client = Client(options.address, options.secret, options.identity)
    print(f"# verdict  {'FAILED' if failed else 'OK'}  {len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description='Checks a worker against the contract DSPK/1.')
    parser.add_argument('command', choices=['contract'])
    parser.add_argument('address', metavar='HOST:PORT', type=lambda text: parse_address(text) and text)
    parser.add_argument('--secret-file', dest='secret', type=read_secret, help='readable by its owner only')
    parser.add_argument('--identity', type=bytes.fromhex, help='digest that dspark-pack verify prints')
    parser.add_argument('--rounds', type=int, default=41, help='[41]')
    parser.add_argument('--seed', type=int, default=1, help='of rows and anchors [1]')
    try:
        return run_contract(parser.parse_args())
    except (OSError, Refused, BrokenContract) as error:
        print(f'dspark_client.py: error: {error}', file=sys.stderr)
        return 3


if __name__ == '__main__':
    sys.exit(main())
