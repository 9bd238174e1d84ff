"""Rows 1 to 15: the permit."""
import os
import signal
import subprocess
import time

from bench import NAME, UUIDS, Skip, check, wait_for
from cases import case


def refused(bench, **kwargs):
    """A run that the permit forbids from the start: 123, nothing locked, nothing written."""
    before = os.listdir(bench.path('locks'))
    code, _, err = bench.run('print("ran")', **kwargs)
    check(code == 123, f'expected 123, got {code}: {err}')
    check('permit' in err and NAME in err, f'the message names permit and owner: {err}')
    check(not os.path.exists(bench.log), 'no log is left')
    check(os.listdir(bench.path('locks')) == before, 'no lock file is made')


def withdrawn(bench, change, limit_s=0.5, **kwargs):
    """A running job ends with 123 after change(), with TERM within the promised time."""
    process = bench.start_waiting(**kwargs)
    begin = time.monotonic()
    change()
    bench.finish(process, 123)
    summary = bench.expect_verdict('permit_withdrawn')
    check(summary['permit']['is_held'] is False, 'the summary says that the permit was withdrawn')
    took = time.monotonic() - begin
    bench.check_time(took <= limit_s + 0.5, f'ended after {took:.3f} s')
    return took


def goes_on(bench, change, note=None):
    """The job ends by itself with its own code in spite of change()."""
    process = bench.start_waiting(bench.patient_job(5))
    change(process)
    if note:
        wait_for(lambda: note in bench.log_text(), f'an event "{note}"')
    bench.release()
    bench.finish(process, 5)
    bench.expect_verdict('child')


@case('1', 'a missing permit: nothing runs and it is not created')
def missing(bench):
    os.unlink(bench.permit)
    refused(bench)
    check(os.listdir(bench.folder) == [], 'the permit is never created')


@case('2', 'a permit that names somebody else: nothing runs')
def other_owner(bench):
    bench.set_permit('owner=SOMEBODY\n')
    refused(bench)


@case('3', 'an atomic replacement that is still ours is noticed and tolerated')
def replaced_still_ours(bench):
    goes_on(bench, lambda _: bench.set_permit(f'again {NAME}\n'), 'has changed and still names us')


@case('4', 'an atomic replacement with another owner ends the job')
def replaced_other(bench):
    withdrawn(bench, lambda: bench.set_permit('owner=SOMEBODY\n'))


@case('5', 'a removed permit ends the job')
def removed(bench):
    withdrawn(bench, lambda: os.unlink(bench.permit))


@case('6', 'truncated and rewritten within 100 ms is tolerated', timed=True)
def truncated_rewritten(bench):
    def change(_):
        with open(bench.permit, 'w') as file:
            time.sleep(0.03)
            file.write(NAME)
        time.sleep(0.4)
    goes_on(bench, change)


@case('6', 'truncated and rewritten before run-owned looks: the events alone withdraw nothing')
def rewritten_between_looks(bench):
    def change(process):
        process.send_signal(signal.SIGSTOP)
        with open(bench.permit, 'w') as file:
            file.flush()
            file.write(NAME)
        process.send_signal(signal.SIGCONT)
    goes_on(bench, change, 'has changed and still names us')


@case('7', 'truncated for good ends the job')
def truncated(bench):
    withdrawn(bench, lambda: os.truncate(bench.permit, 0))


def link_to_permit(bench):
    target = bench.path('elsewhere')
    with open(target, 'w') as file:
        file.write(NAME)
    os.symlink(target, bench.permit + '.link')
    os.rename(bench.permit + '.link', bench.permit)


@case('8', 'a symbolic link is refused at the start')
def symlink_at_start(bench):
    link_to_permit(bench)
    refused(bench)


@case('8', 'a symbolic link ends a running job')
def symlink_later(bench):
    withdrawn(bench, lambda: link_to_permit(bench))


def make_odd(bench, kind):
    if os.path.lexists(bench.permit):
        os.unlink(bench.permit)
    if kind == 'directory':
        os.mkdir(bench.permit)
    elif kind == 'fifo':
        os.mkfifo(bench.permit)
    elif kind == 'device':
        try:
            os.mknod(bench.permit, 0o20644, os.makedev(1, 5))
        except PermissionError as error:
            raise Skip('making a device needs root') from error
    else:
        with open(bench.permit, 'wb') as file:
            file.write(NAME.encode() + b' ' * 5000 if kind == 'large' else b'\0\1\2' + NAME.encode() + b'\0')


def odd_at_start(kind):
    @case('9', f'{kind}: refused without blocking', name=f'{kind}_at_start')
    def test(bench):
        make_odd(bench, kind)
        refused(bench)


for odd_kind in ('directory', 'fifo', 'device', 'large', 'junk'):
    odd_at_start(odd_kind)


@case('9', 'a fifo in place of the permit ends a running job')
def fifo_later(bench):
    withdrawn(bench, lambda: make_odd(bench, 'fifo'))


@case('10', 'our name inside a longer word is not ours')
def substring(bench):
    for text in (NAME + '2', 'x' + NAME, NAME.lower(), NAME[:-1]):
        bench.set_permit(f'owner={text}\n')
        refused(bench)


@case('10', 'our name inside a longer word ends a running job')
def substring_later(bench):
    withdrawn(bench, lambda: bench.set_permit(NAME + '2'))


@case('11', 'line ends of any system, blanks and separators are accepted; a byte order mark is not')
def spelling(bench):
    for number, text in enumerate((f'{NAME}\r\n', f'owner: {NAME}   \n', f'a,{NAME},b', f'x={NAME}')):
        bench.set_permit(text)
        code, _, err = bench.run('pass', log=bench.path(f'log{number}'))
        check(code == 0, f'{text!r}: {code} {err}')
    bench.set_permit('\ufeff' + NAME)
    refused(bench)


def as_nobody(bench):
    """Arguments that run the tool without root's right to read everything."""
    if os.geteuid() != 0:
        return {}
    for folder in (bench.root, bench.path('locks')):
        os.chmod(folder, 0o777)
    return {'user': 65534}


@case('12', 'a permit without permission to read it is refused')
def unreadable(bench):
    who = as_nobody(bench)
    os.chmod(bench.permit, 0)
    refused(bench, **who)


@case('12', 'a permit that turns unreadable ends the job after a second, not before')
def unreadable_later(bench):
    who = as_nobody(bench)
    took = withdrawn(bench, lambda: os.chmod(bench.permit, 0), limit_s=2.0, **who)
    check(took >= 1, f'ended after {took:.3f} s')


# What a network file system answers when its server is gone or has forgotten the file.
FAILURES = (('EIO', 'openat'), ('EIO', 'read'), ('ESTALE', 'openat'), ('ESTALE', 'read'))


@case('12', 'a permit whose opening or reading fails with EIO or ESTALE is refused')
def fails_at_start(bench):
    from tracing import with_failing_call
    for error, call in FAILURES:
        process = with_failing_call(bench, [call], error, path=bench.permit)
        _, err = bench.finish(process, 123)
        check('cannot be read' in err and not os.path.exists(bench.log), f'{error} of {call}: {err}')


@case('12', 'EIO and ESTALE that begin during a run end the job after a second, not before')
def fails_later(bench):
    from tracing import with_failing_call
    for error, call in FAILURES:
        bench.log = bench.path(f'{error}-{call}.log')
        # Two looks before the run and at least one of the watch succeed.
        process = with_failing_call(bench, [call], error, path=bench.permit, when='8+')
        bench.finish(process, 123)
        events = bench.expect_verdict('permit_withdrawn')['events']
        stops = [event['at_s'] for event in events if event['text'].startswith('stop: ')]
        check(any('cannot be read' in event['text'] for event in events), f'{error} of {call}: {events}')
        check(stops and stops[0] >= 1, f'{error} of {call}: stopped after {stops} s')


@case('13', 'a permit that changes between first look and locks: locks are released, nothing runs')
def changes_before_locks(bench):
    from tracing import held_after_call
    held_after_call(bench, 'flock', lambda: bench.set_permit('owner=SOMEBODY\n'), expected=123)
    check(not os.path.exists(bench.log), 'no log is left')
    check(not bench.is_locked(0) and not bench.is_locked(1), 'the locks are free')


@case('14', "the permit's directory is renamed: the poll notices")
def directory_renamed(bench):
    withdrawn(bench, lambda: os.rename(bench.folder, bench.folder + '.old'))


@case('14', "the permit's file system is unmounted: the poll notices")
def unmounted(bench):
    os.unlink(bench.permit)  # the one below would name us again
    done = subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', bench.folder], capture_output=True, check=False)
    if done.returncode != 0:
        raise Skip('needs the right to mount')
    is_mounted = True

    def unmount():
        nonlocal is_mounted
        # A look at the permit keeps it busy for a moment.
        wait_for(lambda: subprocess.run(['umount', bench.folder], capture_output=True, check=False).returncode == 0,
                 'an unmounted folder')
        is_mounted = False
    try:
        bench.set_permit(NAME)
        withdrawn(bench, unmount, limit_s=1.0)
    finally:
        if is_mounted:
            subprocess.run(['umount', '-l', bench.folder], check=True)


@case('15', 'without inotify, or with all its watches taken, the poll alone keeps the promise, with a warning')
def no_inotify(bench):
    # A limit of no descriptors above those in use would break more than inotify; so the call itself fails.
    from tracing import wait_until_running, with_failing_call
    for call, error in (('inotify_init1', 'EMFILE'), ('inotify_add_watch', 'ENOSPC')):
        bench.log = bench.path(f'{call}.log')
        bench.set_permit(NAME)
        process = with_failing_call(bench, [call], error)
        wait_until_running(bench, process)
        bench.set_permit('owner=SOMEBODY\n')
        bench.finish(process, 123)
        summary = bench.expect_verdict('permit_withdrawn')
        check(any('polled' in text for text in summary['warnings']), f'no warning: {summary["warnings"]}')


@case('-', 'the permit is opened for reading only, and its directory is never written')
def read_only(bench):
    from tracing import trace
    process, calls = trace(bench, ['open', 'openat', 'openat2', 'creat', 'unlink', 'unlinkat', 'rename', 'renameat',
                                   'renameat2', 'truncate', 'ftruncate', 'chmod', 'fchmodat', 'mknod', 'mknodat',
                                   'link', 'linkat', 'symlink', 'symlinkat', 'utimensat'])
    bench.finish(process, 0)
    touching = [line for line in calls() if bench.folder in line and 'ENOENT' not in line]
    opened = [line for line in touching if '"' + bench.permit + '"' in line]
    check(len(opened) >= 2, f'the permit is read at least twice: {touching}')
    for line in touching:
        check('O_RDONLY' in line and 'O_CREAT' not in line, f'not a read-only open: {line}')
    for line in opened:
        check('O_NOFOLLOW' in line, f'follows links: {line}')


@case('-', 'a solo run needs no permit, and watches one that is given')
def solo(bench):
    os.unlink(bench.permit)
    check(bench.run('pass', mode='solo')[0] == 0, 'solo runs without a permit')
    bench.set_permit(NAME)
    bench.log = bench.path('second.log')
    withdrawn(bench, lambda: os.unlink(bench.permit), mode='solo', options=('--permit', bench.permit))


@case('-', 'a thousand atomic replacements in a row lose no change')
def many_replacements(bench):
    process = bench.start_waiting()
    for number in range(1000):
        bench.set_permit(f'{number} {NAME}\n')
    check(process.poll() is None, 'still running')
    bench.set_permit(f'owner={UUIDS[0]}\n')
    bench.finish(process, 123)
    wait_for(lambda: not bench.is_locked(), 'the locks are free')
