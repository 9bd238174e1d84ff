"""Rows 16 to 19 and 52: locks."""
import contextlib
import fcntl
import os
import subprocess
import time

from bench import PYTHON, UUIDS, check, wait_for
from cases import case


def hold(path):
    fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def busy(bench, index, word):
    fd = hold(bench.lock_path(index))
    code, _, err = bench.run('print("ran")')
    os.close(fd)
    check(code == 125 and f'{word} lock' in err, f'{code}: {err}')
    check(f'pid {os.getpid()}' in err, f'the holder is named: {err}')
    check(not os.path.exists(bench.log), 'no log is left')
    check(not bench.is_locked(0) and not bench.is_locked(1), 'nothing stays locked')


# Locks are taken in the order of UUIDs, which here is the reverse of the ranks.
FIRST, SECOND = (1, 0) if UUIDS[1] < UUIDS[0] else (0, 1)


@case('16', 'the first lock is busy: refused, the holder is named')
def first_busy(bench):
    busy(bench, FIRST, 'first')


@case('16', 'the second lock is busy: the first is released again')
def second_busy(bench):
    busy(bench, SECOND, 'second')


@case('17', 'a lock inherited from a dead process: the inheritor is named and nothing is stolen')
def inherited(bench):
    holder = subprocess.Popen(
        [PYTHON, '-S', '-c', f'''
import fcntl, os, sys, time
fd = os.open({bench.lock_path(0)!r}, os.O_RDONLY | os.O_CREAT, 0o644)
fcntl.flock(fd, fcntl.LOCK_EX)
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
sys.stdout.close(); os.close(1)
time.sleep(30)
'''], stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    holder.wait()
    holder.stdout.close()
    try:
        code, _, err = bench.run('print("ran")')
        check(code == 125 and f'pid {child}' in err and f'inherited it from pid {holder.pid}' in err,
              f'{code}: {err}')
        check(bench.is_locked(0), 'the inheritor keeps the lock')
    finally:
        os.kill(child, 9)
    wait_for(lambda: not bench.is_locked(0), 'free after the inheritor')


def make_lock_file(bench, index):
    """A new file where the lock file was, as somebody who cleans up the folder leaves it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(bench.lock_path(index))
    os.close(os.open(bench.lock_path(index), os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o644))


@case('18', 'a lock file that is replaced while it is being locked is taken again')
def replaced_while_locking(bench):
    from tracing import held_after_call
    make_lock_file(bench, FIRST)
    held_after_call(bench, 'openat', lambda: make_lock_file(bench, FIRST), expected=0, path=bench.lock_path(FIRST))


@case('18', 'a lock file that is replaced at every attempt is refused after the third')
def replaced_again_and_again(bench):
    from tracing import held_after_call
    make_lock_file(bench, FIRST)
    swaps = []
    err = held_after_call(bench, 'openat', lambda: swaps.append(make_lock_file(bench, FIRST)), expected=125,
                          path=bench.lock_path(FIRST), when='1+')
    check('replaced again and again' in err and len(swaps) == 3, f'{len(swaps)} attempts: {err}')
    check(not os.path.exists(bench.log) and not bench.is_locked(1 - FIRST), 'nothing is written or locked')


@case('18', 'while a run lasts its lock is on the file that the path names')
def lock_is_on_the_named_file(bench):
    process = bench.start_waiting()
    check(bench.is_locked(0) and bench.is_locked(1), 'both are locked')
    process.terminate()
    bench.finish(process, 143)
    check(not bench.is_locked(0) and not bench.is_locked(1), 'both are free')


@case('19', 'a symbolic link as a lock file is refused')
def lock_symlink(bench):
    os.symlink('/dev/null', bench.lock_path(0))
    code, _, err = bench.run('print("ran")')
    check(code == 125 and 'symbolic link' in err, f'{code}: {err}')


@case('19', 'a lock folder on NFS is used, with a warning')
def lock_on_nfs(bench):
    code, _, err = bench.run('raise SystemExit(3)', env=bench.preload('nfs_statfs.so'))
    warnings = bench.summary()['warnings']
    check(code == 3 and len([text for text in warnings if 'is on NFS' in text]) == 2, f'{code}: {warnings} {err}')
    check('is on NFS' in err, f'no warning for the caller: {err}')


@case('19', 'a file system that cannot lock is refused')
def lock_not_supported(bench):
    from tracing import with_failing_call
    for error in ('ENOLCK', 'EOPNOTSUPP'):
        process = with_failing_call(bench, ['flock'], error)
        _, err = bench.finish(process, 125)
        check('lock file' in err and not os.path.exists(bench.log), f'{error}: {err}')


@case('52', 'a second run gets the error at once and the first goes on')
def two_at_once(bench):
    first = bench.start_waiting()
    took = []
    for number in range(5):
        begin = time.monotonic()
        code, _, err = bench.run('print("ran")', log=bench.path(f'second{number}'))
        took.append(time.monotonic() - begin)
        check(code == 125 and f'pid {first.pid}' in err, f'{code}: {err}')
    if bench.judges_time:
        print(f'# second run refused after {min(took) * 1e3:.0f} ms (best of 5, whole process)')
    # The whole process with its look at the cards; the lock alone answers in microseconds.
    bench.check_time(min(took) < 0.25, f'refused only after {min(took):.3f} s')
    check(first.poll() is None, 'the first goes on')


@case('52', 'a pair run and a solo run share the card they have in common')
def solo_against_pair(bench):
    bench.start_waiting()
    code, _, _ = bench.run('print("ran")', mode='solo', gpus='7744b44b', log=bench.path('second'))
    check(code == 125, f'the card is taken: {code}')


@case('B24', 'a job that leaves a daemon behind never holds the locks')
def daemon_has_no_lock(bench):
    extra = os.dup(0)
    os.set_inheritable(extra, True)
    code, out, _ = bench.run('import os; print(sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in '
                             'os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")))',
                             close_fds=False)
    os.close(extra)
    check(code == 0 and out.count(b"'") == 6, f'three descriptors and no more: {out}')
    check(b'.lock' not in out and b'run.log' not in out, f'descriptors of the job: {out}')
