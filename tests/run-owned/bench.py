"""A scratch lane for tests of run-owned: fake cards, permit, lock folder, and the tool started in it.

Everything a test needs lives in one temporary folder, so that tests run side by side.
"""
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PYTHON = sys.executable
NAME = 'RX-TP2SAFE'
UUIDS = ['GPU-c4e7a371-1111-2222-3333-444455556666', 'GPU-7744b44b-1111-2222-3333-444455556666']
QUICK = ['--cap-ms', '120000', '--grace-ms', '300', '--kill-margin-ms', '200', '--sample-period-ms', '100',
         '--give-up-ms', '10000', '--progress', 'never']

# What a job does in most tests: says that it runs, then waits.
# The marker is not in the source text, which the log repeats.
WAIT = 'import time; print("run" "ning", flush=True); time.sleep(60)'
IGNORE_TERM = 'import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); ' + WAIT


class Skip(Exception):
    """The machine lacks what the test needs."""


class Failure(AssertionError):
    """A claim that did not hold."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def wait_for(condition, what, limit_s=60.0):
    """The first true value of condition(). The limit only ends a test that hangs: it judges nothing."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise Failure(f'{what}: not within {limit_s} s')


def script(cards=2, **changes):
    """Text of a fake NVML script; changes replace or add `cardN.key` with dots written as `__`."""
    values = {'cards': cards, 'driver': '580.0-fake'}
    for index in range(cards):
        uuid = UUIDS[index] if index < 2 else f'GPU-{index:08x}-0000-0000-0000-000000000000'
        values.update({f'card{index}.uuid': uuid, f'card{index}.name': 'Fake 3090',
                       f'card{index}.pci': f'00000000:{0x41 + 0x20 * index:02X}:00.0',
                       f'card{index}.power_mw': '100000,351000,200000',
                       f'card{index}.power_average_mw': 150000, f'card{index}.limit_mw': 325000,
                       f'card{index}.sm_mhz': 1965, f'card{index}.memory_mhz': 9501,
                       f'card{index}.temperature': 61, f'card{index}.pstate': 2,
                       f'card{index}.reasons': '0x4', f'card{index}.used': 5 << 30,
                       f'card{index}.total': 24 << 30, f'card{index}.links': 2,
                       f'card{index}.utilization': 97})
        for link in range(2):
            for counter in ('replay', 'recovery', 'crc_flit', 'crc_data'):
                values[f'card{index}.link{link}.{counter}'] = 0
    values.update({key.replace('__', '.'): value for key, value in changes.items()})
    return ''.join(f'{key} = {value}\n' for key, value in values.items() if value is not None)


class Bench:
    """One lane. `bin_dir` holds run-owned and the fakes; `judges_time` is for a machine with nothing else to do."""

    def __init__(self, bin_dir, library='fake_nvml.so', judges_time=False):
        self.judges_time = judges_time
        self.tool = os.path.join(bin_dir, 'run-owned')
        self.bin_dir = bin_dir
        self.root = tempfile.mkdtemp(prefix='run-owned-test.')
        os.chmod(self.root, 0o755)
        self.folder = self.path('permits')
        os.mkdir(self.folder)
        os.mkdir(self.path('locks'))
        self.permit = os.path.join(self.folder, 'PAIR_OK')
        self.log = self.path('run.log')
        self.library = self.path('libnvidia-ml.so.1')
        shutil.copy(os.path.join(bin_dir, library), self.library)
        self.set_cards(script())
        self.set_permit(f'owner={NAME}\n')
        self.started = []

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def check_time(self, condition, text):
        """A claim about how long something took."""
        if self.judges_time:
            check(condition, text)

    def patient_job(self, code):
        """A job that says that it runs and ends with `code` once release() is called."""
        return (f'import os, time\nprint("run" "ning", flush=True)\n'
                f'while not os.path.exists({self.path("release")!r}): time.sleep(0.01)\nraise SystemExit({code})')

    def release(self):
        self.replace(self.path('release'), '')

    def preload(self, library, content=''):
        """Environment in which a library of ours stands in front of the system's; `content` is what it reads."""
        place = self.path(library)
        if not os.path.exists(place):
            shutil.copy(os.path.join(self.bin_dir, library), place)
        self.replace(place + '.shift', content)
        # The address sanitizer wants to come first; here it may come second.
        return dict(os.environ, LD_PRELOAD=place, ASAN_OPTIONS='verify_asan_link_order=0')

    def shift_clocks(self, wall_s, boot_s):
        """Environment of a run whose wall clock and boot clock are off by so much; later calls move them."""
        return self.preload('shifted_clock.so', f'{wall_s} {boot_s}\n')

    def replace(self, path, text):
        """Atomic replacement, as a careful coordinator does it."""
        temporary = path + '.new'
        with open(temporary, 'w') as file:
            file.write(text)
        os.rename(temporary, path)

    def set_cards(self, text):
        self.replace(self.library + '.script', text)

    def set_permit(self, text):
        self.replace(self.permit, text)

    def arguments(self, job, mode='pair', options=(), gpus=None, log=None, quick=QUICK):
        if gpus is None:
            gpus = 'c4e7a371,7744b44b' if mode == 'pair' else 'c4e7a371'
        words = [self.tool, mode, '--gpus', gpus, '--lock-dir', self.path('locks'), '--log', log or self.log,
                 '--nvml', self.library]
        for flag, value in zip(quick[::2], quick[1::2]):
            if flag not in options:
                words += [flag, value]
        if '--permit' not in options and mode == 'pair':
            words += ['--permit', self.permit]
        command = [PYTHON, '-E', '-S', '-c', job] if isinstance(job, str) else list(job)
        return words + list(options) + ['--'] + command

    def start(self, job, **kwargs):
        run = {key: kwargs.pop(key) for key in ('env', 'user', 'stdout', 'stderr', 'preexec_fn', 'close_fds',
                                                'start_new_session') if key in kwargs}
        run.setdefault('stdout', subprocess.PIPE)
        run.setdefault('stderr', subprocess.PIPE)
        process = subprocess.Popen(self.arguments(job, **kwargs), stdin=subprocess.DEVNULL, **run)
        self.started.append(process)
        return process

    def start_waiting(self, job=WAIT, marker='running', **kwargs):
        """Starts and waits until the job has written the marker into the log."""
        process = self.start(job, **kwargs)
        wait_for(lambda: process.poll() is not None or marker in self.log_text(kwargs.get('log')),
                 f'the job says "{marker}"')
        if process.poll() is not None:
            raise Failure(f'ended early with {process.returncode}: {process.communicate()}')
        return process

    def run(self, job, **kwargs):
        """Exit code, output and errors of a whole run."""
        process = self.start(job, **kwargs)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err.decode(errors='replace') if err else ''

    def finish(self, process, expected, limit_s=120):
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as late:
            raise Failure(f'still running after {limit_s} s; log: {self.log_text()}') from late
        err = err.decode(errors='replace') if err else ''
        check(process.returncode == expected,
              f'expected exit {expected}, got {process.returncode}; {err}\n{self.log_text()}')
        return out, err

    def log_text(self, log=None):
        try:
            with open(log or self.log, errors='replace') as file:
                return file.read()
        except OSError:
            return ''

    def summary(self, log=None):
        with open((log or self.log) + '.summary.json') as file:
            return json.load(file)

    def expect_verdict(self, verdict):
        summary = self.summary()
        check(summary['verdict'] == verdict, f'expected verdict {verdict}, got {summary["verdict"]}: {summary}')
        return summary

    def samples(self):
        with open(self.log + '.telemetry.jsonl') as file:
            return [json.loads(line) for line in file]

    def lock_path(self, index):
        return self.path('locks', f'run-owned-{UUIDS[index]}.lock')

    def is_locked(self, index=0):
        try:
            fd = os.open(self.lock_path(index), os.O_RDONLY)
        except OSError as error:
            check(error.errno == errno.ENOENT, str(error))
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def exits(self):
        """How the runs of this lane that have ended did end, as a shell shows it."""
        codes = {process.returncode for process in self.started if process.returncode is not None}
        return {code if code >= 0 else 128 - code for code in codes}

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        # The guards end their jobs; nothing of them uses the folder afterwards.
        wait_for(lambda: not self.is_locked(0) and not self.is_locked(1), 'locks free at the end')
        shutil.rmtree(self.root, ignore_errors=True)


def is_alive(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_with(marker, without=None):
    """Living processes whose command line holds the marker and not the other text."""
    found = []
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            with open(f'/proc/{name}/cmdline', 'rb') as file:
                # Once: the line of a process that is ending is empty.
                line = file.read()
                if marker.encode() in line and not (without and without.encode() in line) and is_alive(name):
                    found.append(int(name))
        except OSError:
            continue
    return found


def guard_of(process):
    """Pid of the guard of a started run-owned."""
    def find():
        for name in os.listdir('/proc'):
            try:
                with open(f'/proc/{name}/stat') as file:
                    text = file.read()
            except OSError:
                continue
            if '(run-owned-guard)' in text and text.rsplit(')', 1)[1].split()[1] == str(process.pid):
                return int(name)
        return None
    return wait_for(find, 'a guard')


def send(pid, number=signal.SIGKILL):
    os.kill(pid, number)
