"""Rows 38 to 41 and 53: jobs that do not want to end, and processes that are not theirs."""
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from bench import IGNORE_TERM, PYTHON, WAIT, Skip, check, guard_of, is_alive, pids_with, send, wait_for
from cases import both_ways, case
from jobs import BOMB, BOMB_SIZE, CHURN, DOUBLE_FORK, job_pid, shift, stopped_by_permit


@both_ways('38', 'a stopped job gets TERM and CONT and ends')
def stopped(bench, options):
    process = bench.start_waiting(options=options)
    pid = job_pid(bench)
    os.kill(pid, signal.SIGSTOP)
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    summary = bench.expect_verdict('permit_withdrawn')
    check(not is_alive(pid) and summary['child']['signal'] == 15, f'{summary["child"]}')


@both_ways('38', 'a child that stops itself again and again is killed')
def stops_itself(bench, options):
    job = ('import os, signal, time\n'
           'signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))\n'
           'print("run" "ning", os.getpid(), flush=True)\n'
           'while True: time.sleep(1)')
    stopped_by_permit(bench, job, options)


@both_ways('39', 'a job that ignores TERM is killed after the grace')
def ignores(bench, options):
    process = bench.start_waiting(IGNORE_TERM, options=options)
    pid = job_pid(bench)
    begin = time.monotonic()
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    check(0.3 <= time.monotonic() - begin and not is_alive(pid), 'the grace is given')
    bench.check_time(time.monotonic() - begin < 3, 'more than the grace')
    check(bench.summary()['child']['signal'] == 9, 'KILL ended it')


def is_stuck(bench):
    return os.path.exists(bench.log + '.summary.json') and bench.summary()['verdict'] == 'stuck'


@case('40', 'what no signal reaches: the ladder ends, pid, state and wait channel are logged, the locks stay held')
def unreachable(bench):
    from tracing import wait_until_running, with_failing_call
    # Every way to signal fails, as for a process in state D it has no effect. The watchdogs of a dead guard stay.
    process = with_failing_call(bench, ['kill', 'pidfd_send_signal'], 'EPERM',
                                options=('--cgroup', 'off', '--give-up-ms', '500'))
    wait_until_running(bench, process)
    pid = job_pid(bench)
    bench.set_permit('owner=SOMEBODY\n')
    # The tracer ends with its last tracee; the summary is written before.
    wait_for(lambda: is_stuck(bench), 'the summary says stuck')
    named = re.search(rf"cannot be killed: pid {pid} \(.*\), state \w, waits in '\w*'", bench.log_text())
    check(named, bench.log_text())
    check(is_alive(pid) and bench.is_locked(0) and bench.is_locked(1), 'the locks are held')
    bench.set_permit('RX-TP2SAFE')
    code, _, err = bench.run('print("ran")', log=bench.path('second'))
    check(code == 125 and '(run-owned-guard)' in err, f'the next run names the guard: {err}')
    send(pid)
    bench.finish(process, 125)
    check(not bench.is_locked(0) and not bench.is_locked(1), 'the locks are free once it is gone')


@case('40', "what cannot be killed at the cap stays the guard's business")
def unkillable_at_cap(bench):
    unkillable(bench, lambda: shift(bench, 840), ('--cap-ms', '840000'))


@case('40', 'a process in state D: the ladder ends, the locks stay held until it is gone')
def unkillable(bench, end=None, options=()):
    end = end or (lambda: bench.set_permit('owner=SOMEBODY\n'))
    freezer = f'/sys/fs/cgroup/freezer/run-owned-test-{os.getpid()}-{time.monotonic_ns()}'
    if not os.access('/sys/fs/cgroup/freezer/cgroup.procs', os.W_OK):
        raise Skip('needs a version 1 freezer to hold a process in state D')

    def write(name, text):
        with open(f'{freezer}/{name}', 'w') as file:
            file.write(text)
    os.mkdir(freezer)
    try:
        process = bench.start_waiting(options=('--give-up-ms', '1000', *options), env=bench.shift_clocks(0, 0))
        pid = job_pid(bench)
        write('cgroup.procs', str(pid))
        write('freezer.state', 'FROZEN')
        guard = guard_of(process)
        end()
        bench.finish(process, 125)
        bench.expect_verdict('stuck')
        check(is_alive(guard), 'the guard is gone')
        stuck = re.search(rf"cannot be killed: pid {pid} \(.*\), state D, waits in '\w+'", bench.log_text())
        check(stuck, bench.log_text())
        check(is_alive(pid) and bench.is_locked(0) and bench.is_locked(1), 'the locks are held')
        bench.set_permit('RX-TP2SAFE')
        code, _, err = bench.run('print("ran")', log=bench.path('second'))
        check(code == 125 and f'pid {guard}' in err, f'the next run names the guard: {err}')
    finally:
        write('freezer.state', 'THAWED')
        wait_for(lambda: not bench.is_locked(0), 'the guard ends when the job is gone')
        wait_for(lambda: not open(f'{freezer}/cgroup.procs').read(), 'an empty freezer')
        os.rmdir(freezer)
    check(not is_alive(pid), 'it is dead')


@both_ways('41', 'a job that forks without end is killed')
def forks_on(bench, options):
    marker = f'fork-bomb-{os.getpid()}-{time.monotonic_ns()}'
    if os.geteuid() != 0:
        raise Skip('needs root: the bomb runs as a user of its own, whose processes are counted')
    for folder in (bench.root, bench.path('locks')):
        os.chmod(folder, 0o777)
    # The count is of one user's processes; nobody else has this number.
    user = 900_000_000 + os.getpid()

    def limit():
        resource.setrlimit(resource.RLIMIT_NPROC, (BOMB_SIZE, BOMB_SIZE))
    # With root's right to make the control group, or without any.
    job = BOMB.format(marker=marker)
    if options:
        process = bench.start_waiting(job, options=options, user=user, preexec_fn=limit)
    else:
        start = f'import os; os.setgid({user}); os.setuid({user}); exec({job!r})'
        process = bench.start_waiting(start, options=options, preexec_fn=limit)
    wait_for(lambda: len(pids_with(marker)) > BOMB_SIZE // 2, 'a bomb of some size')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    check(not pids_with(marker), f'left: {pids_with(marker)}')


@case('41', 'the job may have 4096 processes where the pids controller is delegated, which is asked for everywhere')
def bounded(bench):
    from tracing import trace, wait_until_running
    process, calls = trace(bench, ['openat'], job=WAIT)
    wait_until_running(bench, process)
    group = wait_for(lambda: re.search(r'control group (/\S+)', bench.log_text()), 'a control group', 2).group(1)
    asked = [line for line in calls() if f'"{group}/pids.max", O_WRONLY' in line]
    check(len(asked) == 1, f'{asked}')
    if os.path.exists(f'{group}/pids.max'):
        with open(f'{group}/pids.max') as file:
            check(file.read() == '4096\n', 'the bound is set')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)


@case('B26', 'a child that forks and changes session while being killed leaves nothing')
def forks_while_killed(bench):
    marker = f'restless-{os.getpid()}-{time.monotonic_ns()}'
    job = (f'"{marker}"\nimport os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
           'print("run" "ning", flush=True)\n'
           'end = time.monotonic() + 60\n'
           'while time.monotonic() < end:\n'
           '  if os.fork(): os._exit(0)\n'
           '  os.setsid()\n'
           '  time.sleep(0.002)')
    process = bench.start_waiting(job, options=('--cgroup', 'off'))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    check(not pids_with(marker), f'left: {pids_with(marker)}')


@case('53', 'signals go through descriptors of processes, except to the group that is still reserved')
def signals_by_pidfd(bench):
    from tracing import trace, wait_until_running
    job = DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)')
    process, calls = trace(bench, ['kill', 'pidfd_send_signal', 'tgkill', 'tkill'], job=job)
    wait_until_running(bench, process)
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    lines = [line for line in calls() if '+++' not in line and '---' not in line]
    job_id = job_pid(bench)
    kills = [line for line in lines if ' kill(' in line and f'kill(-{job_id},' not in line]
    # The one other kill is to the telemetry helper, a child that is not reaped yet.
    check(all('SIGTERM' in line for line in kills) and len(kills) <= 1, f'signals by number: {kills}')
    check(any('pidfd_send_signal' in line for line in lines), 'the double-forked one by descriptor')


@case('53', 'numbers of processes that wrap around: nobody outside the job gets a signal meant for it')
def numbers_wrap(bench):
    unshare = ['unshare', '--pid', '--fork', '--mount-proc']
    small = ['sh', '-c', 'echo 400 >/proc/sys/kernel/pid_max && test "$(cat /proc/sys/kernel/pid_max)" = 400']
    if shutil.which('unshare') is None or subprocess.run([*unshare, *small], capture_output=True,
                                                         check=False).returncode != 0:
        raise Skip('needs root and a kernel with a limit of process numbers per namespace (6.14)')
    runs = 3
    words = [bench.arguments(CHURN, log=bench.path(f'churn{run}'), options=('--cgroup', 'off')) for run in range(runs)]
    done = subprocess.run([*unshare, PYTHON, '-S', os.path.join(os.path.dirname(__file__), 'wrapping.py'), bench.permit,
                           repr(words)], capture_output=True, text=True, timeout=110, check=False)
    check(done.returncode == 0, f'{done.stdout}{done.stderr}')
    print('# ' + done.stdout.strip())
