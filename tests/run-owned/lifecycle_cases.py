"""Rows 20 to 22, 33 to 42, 47 to 49: how jobs end."""
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time

from bench import IGNORE_TERM, Skip, check, guard_of, is_alive, pids_with, send, wait_for
from cases import case

# Ends at once and leaves a process in another session behind, adopted by nobody of the job.
DOUBLE_FORK = '''
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("run" "ning", os.getpid(), flush=True)
        {body}
    os._exit(0)
{rest}
'''


def number_after(bench, word):
    """The number behind a line's start in the log; the job's output may reach it before or after
    run-owned's own lines."""
    found = wait_for(lambda: re.search(rf'^{word}(\d+)\n', bench.log_text(), re.MULTILINE), f'"{word}" in the log')
    return int(found.group(1))


def job_pid(bench):
    text = wait_for(lambda: 'job started: pid ' in bench.log_text() and bench.log_text(), 'a started job')
    return int(text.split('job started: pid ', 1)[1].split(',')[0])


def stopped_by_permit(bench, job, options=()):
    """The job runs, the permit goes, everything is gone. Returns the pid that the job printed."""
    process = bench.start_waiting(job, options=options)
    pid = number_after(bench, 'running ')
    check(is_alive(pid), 'the job runs')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    check(not is_alive(pid), f'{pid} is left: {bench.log_text()}')
    return pid


def both_ways(row, claim):
    """The same test with the control group and without."""
    def register(function):
        def without(bench):
            function(bench, ('--cgroup', 'off'))
        case(row, claim)(lambda bench: function(bench, ()))
        case(row, claim + ', also without a control group')(without)
        return function
    return register


@both_ways('20', 'SIGKILL of run-owned: the job dies, then the locks are free')
def killed(bench, options):
    job = DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)')
    process = bench.start_waiting(job, options=options)
    pids = [job_pid(bench), number_after(bench, 'running ')]
    process.kill()
    process.wait()
    begin = time.monotonic()
    check(process.returncode == -signal.SIGKILL, 'the caller sees the signal')
    while any(is_alive(pid) for pid in pids):
        check(bench.is_locked(0) and bench.is_locked(1) or not any(is_alive(pid) for pid in pids),
              'a lock is free while the job lives')
        check(time.monotonic() - begin < 1, f'alive after 1 s: {pids}')
    wait_for(lambda: not bench.is_locked(0) and not bench.is_locked(1), 'the locks are free', 1)


@case('20', 'SIGKILL of the whole process group of run-owned does not reach the guard')
def group_killed(bench):
    process = bench.start_waiting(start_new_session=True)
    pid = job_pid(bench)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not is_alive(pid), 'the job is dead', 1)
    wait_for(lambda: not bench.is_locked(0), 'the locks are free', 1)


@both_ways('20', 'SIGKILL of the guard: run-owned ends the job itself')
def guard_killed(bench, options):
    job = DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)')
    process = bench.start_waiting(job, options=options)
    pids = [job_pid(bench), number_after(bench, 'running ')]
    send(guard_of(process))
    bench.finish(process, 125)
    bench.expect_verdict('guard_lost')
    check(not any(is_alive(pid) for pid in pids), 'somebody is left')


@case('20', 'a stopped guard is replaced when the job must end')
def guard_stopped(bench):
    process = bench.start_waiting()
    pid = job_pid(bench)
    send(guard_of(process), signal.SIGSTOP)
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 125)
    check(not is_alive(pid), 'the job is left')


@case('20', 'TERM to the guard ends the job as TERM to run-owned does')
def guard_told(bench):
    process = bench.start_waiting()
    send(guard_of(process), signal.SIGTERM)
    bench.finish(process, 143)
    bench.expect_verdict('signal')


@case('21', 'TERM, INT and HUP to run-owned end the job and leave a summary')
def signalled(bench):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        log = bench.path(f'log{int(number)}')
        process = bench.start_waiting(log=log)
        process.send_signal(number)
        bench.finish(process, 128 + number)
        check(bench.summary(log)['verdict'] == 'signal', 'verdict')


@case('21', 'a second signal ends the grace')
def second_signal(bench):
    process = bench.start_waiting(IGNORE_TERM, options=('--grace-ms', '8000'))
    begin = time.monotonic()
    process.terminate()
    wait_for(lambda: 'TERM and CONT' in bench.log_text(), 'TERM')
    process.terminate()
    bench.finish(process, 143)
    check(time.monotonic() - begin < 4, 'it waits for the grace')


@case('22', 'a closed terminal ends the job like HUP')
def terminal_closed(bench):
    master, slave = pty.openpty()
    process = bench.start_waiting(
        stdout=slave, stderr=slave,
        # A controlling terminal, so that its end is heard.
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(slave, termios.TIOCSCTTY, 0)))
    pid = job_pid(bench)
    os.close(slave)
    os.close(master)
    check(process.wait(10) == 129, f'exit {process.returncode}')
    check(not is_alive(pid), 'the job is left')
    bench.expect_verdict('signal')


@case('33', 'the cap ends the job: 124, nothing alive at the cap')
def cap(bench):
    process = bench.start_waiting(options=('--cap-ms', '1200'))
    pid = job_pid(bench)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(0.5 <= summary['duration_s'] <= 1.2, f'{summary["duration_s"]} s')
    check(not is_alive(pid), 'the job is left')


@both_ways('33', 'a job that ignores TERM is dead at the cap, too')
def cap_ignoring(bench, options):
    process = bench.start_waiting(IGNORE_TERM, options=('--cap-ms', '1200', *options))
    pid = job_pid(bench)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(0.8 <= summary['duration_s'] <= 1.2, f'{summary["duration_s"]} s')
    check(not is_alive(pid) and summary['child']['signal'] == 9, 'KILL ended it')


def shifted(bench, wall_s, boot_s):
    library = os.path.join(bench.root, 'shifted_clock.so')
    if not os.path.exists(library):
        subprocess.run(['cp', os.path.join(bench.bin_dir, 'shifted_clock.so'), library], check=True)
    bench.replace(library + '.shift', f'{wall_s} {boot_s}\n')
    # The address sanitizer wants to come first; here it may come second.
    return dict(os.environ, LD_PRELOAD=library, ASAN_OPTIONS='verify_asan_link_order=0')


@case('34', 'a wall clock that jumps by an hour changes nothing and is noted')
def wall_jump(bench):
    job = 'import time; print("run" "ning", flush=True); time.sleep(1.2); raise SystemExit(3)'
    process = bench.start_waiting(job, env=shifted(bench, 0, 0), options=('--cap-ms', '8000'))
    shifted(bench, 3600, 0)
    wait_for(lambda: 'jumped by +3600' in bench.log_text(), 'a note of the jump')
    shifted(bench, -3600, 0)
    wait_for(lambda: 'jumped by -7200' in bench.log_text(), 'a note of the jump back')
    bench.finish(process, 3)


@case('34', 'no wait of run-owned is on the wall clock')
def no_wall_waits(bench):
    from tracing import trace
    process, calls = trace(bench, ['futex', 'timerfd_create', 'clock_nanosleep', 'timer_create'],
                           job='import time; time.sleep(0.3)')
    bench.finish(process, 0, 20)
    own = [line for line in calls() if 'CLOCK_REALTIME' in line and 'timeout' not in line and 'NULL' not in line]
    check(not own, f'waits on the wall clock: {own[:3]}')


@case('35', 'suspended time counts: the cap fires at resume')
def suspended(bench):
    process = bench.start_waiting(env=shifted(bench, 0, 0), options=('--cap-ms', '600000'))
    begin = time.monotonic()
    shifted(bench, 3600, 3600)
    bench.finish(process, 124)
    check(time.monotonic() - begin < 2, 'it waits on')


@both_ways('36', 'a double-forked child in its own session is found and killed')
def double_forked(bench, options):
    stopped_by_permit(bench, DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)'), options)


@both_ways('36', 'a double-forked child that outlives the job is a leftover: 125')
def outlives(bench, options):
    process = bench.start(DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(0.2)'), options=options)
    bench.finish(process, 125)
    summary = bench.expect_verdict('leftovers')
    pid = number_after(bench, 'running ')
    check(any(text.startswith(str(pid)) for text in summary['leftovers']), str(summary['leftovers']))
    check(not is_alive(pid) and summary['child']['exit_code'] == 0, 'it is left')


@case('36', 'a job that hides in a control group below its own is found and the groups are removed')
def nested_group(bench):
    job = ('import os, time\n'
           'group = open("/proc/self/cgroup").read().split("0::")[1].split()[0]\n'
           'mount = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup2 " in line][0]\n'
           'os.mkdir(mount + group + "/inner")\n'
           'if os.fork() == 0:\n'
           '  os.setsid()\n'
           '  open(mount + group + "/inner/cgroup.procs", "w").write("0")\n'
           '  print("run" "ning", os.getpid(), flush=True)\n'
           'time.sleep(60)')
    if os.geteuid() != 0 or not any(' - cgroup2 ' in line for line in open('/proc/self/mountinfo')):
        raise Skip('needs a control group of its own')
    stopped_by_permit(bench, job)
    check(not os.path.exists(bench.summary()['control_group']), 'the group is left')


@both_ways('37', 'a background helper of the same group is ended and reported: 125')
def background(bench, options):
    code, _, _ = bench.run(['sh', '-c', 'sleep 60 & echo running $!; exit 6'], options=options)
    summary = bench.expect_verdict('leftovers')
    pid = number_after(bench, 'running ')
    check(code == 125 and not is_alive(pid) and summary['child']['exit_code'] == 6, f'{code}')


@case('37', 'a helper that ends a moment after the job is no leftover')
def settles(bench):
    check(bench.run(['sh', '-c', 'sleep 0.08 & exit 6'])[0] == 6, 'the code of the job')


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
    check(0.3 <= time.monotonic() - begin < 3 and not is_alive(pid), 'the grace is given')
    check(bench.summary()['child']['signal'] == 9, 'KILL ended it')


@case('49', 'a permit withdrawn while the cap ends the job: the grace goes on and the cap is the verdict')
def permit_during_cap(bench):
    options = ('--cap-ms', '4400', '--grace-ms', '3000')
    process = bench.start_waiting(IGNORE_TERM, options=options)
    wait_for(lambda: 'TERM and CONT' in bench.log_text(), 'TERM')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 124)
    check(bench.expect_verdict('cap')['duration_s'] > 4, 'the guard was replaced in the middle of the grace')


@case('40', 'what cannot be killed at the cap stays the guard\'s business')
def unkillable_at_cap(bench):
    unkillable(bench, lambda: None, ('--cap-ms', '1500', '--give-up-ms', '3500'))


@case('40', 'what cannot be killed: the ladder ends, the locks stay held until it is gone')
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
        process = bench.start_waiting(options=options)
        pid = job_pid(bench)
        write('cgroup.procs', str(pid))
        write('freezer.state', 'FROZEN')
        guard = guard_of(process)
        end()
        bench.finish(process, 125)
        bench.expect_verdict('stuck')
        check(is_alive(guard), 'the guard is gone')
        check(f'cannot be killed: pid {pid}' in bench.log_text() and 'state D' in bench.log_text(), bench.log_text())
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
    # Each process lives for a moment and starts two; the count of living ones stays bounded.
    job = (f'"{marker}"\nimport os, time, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n'
           'print("run" "ning", flush=True)\n'
           'while True:\n'
           '  if os.fork() == 0:\n'
           '    os.setsid()\n'
           '    if os.fork(): os._exit(0)\n'
           '  time.sleep(0.05)\n'
           '  if len(os.listdir("/proc")) > 600: time.sleep(0.2)')
    process = bench.start_waiting(job, options=options)
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    check(not pids_with(marker), f'left: {pids_with(marker)}')


@case('42', 'a command that is not there: 127; one that cannot be executed: 126')
def cannot_run(bench):
    code, _, err = bench.run(['no-such-command-here'])
    check(code == 127 and 'cannot run' in err, f'{code} {err}')
    bench.expect_verdict('cannot_run')
    plain = bench.path('plain')
    with open(plain, 'w') as file:
        file.write('text')
    check(bench.run([plain], log=bench.path('second'))[0] == 126, 'not executable')
    check(not bench.is_locked(), 'the locks are free')


@case('47', 'without permission for a control group: a warning, and the job still ends whole')
def no_cgroup_permission(bench):
    if os.geteuid() != 0:
        raise Skip('needs root to become somebody without permission')
    for folder in (bench.root, bench.path('locks')):
        os.chmod(folder, 0o777)
    job = DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)')
    process = bench.start_waiting(job, user=65534)
    pid = number_after(bench, 'running ')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    summary = bench.summary()
    check(not is_alive(pid) and summary['control_group'] is None, 'left')
    check(any('control group' in text for text in summary['warnings']), str(summary['warnings']))


@case('48', 'run-owned stopped by a debugger: the guard enforces the cap')
def monitor_stopped(bench):
    process = bench.start_waiting(options=('--cap-ms', '1500'))
    pid = job_pid(bench)
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: not is_alive(pid), 'the job is dead', 2)
    check(bench.is_locked(0), 'the locks are held while run-owned is stopped')
    process.send_signal(signal.SIGCONT)
    bench.finish(process, 124)


@case('49', "the job's own code wins when it ended before the stop")
def same_instant(bench):
    for number in range(6):
        log = bench.path(f'log{number}')
        job = f'import time; print("run" "ning", flush=True); time.sleep({0.25 + number * 0.02}); raise SystemExit(9)'
        process = bench.start_waiting(job, log=log, options=('--cap-ms', '850'))
        process.communicate(timeout=10)
        summary = bench.summary(log)
        expected = {'child': 9, 'cap': 124}[summary['verdict']]
        check(process.returncode == expected == summary['exit_code'], f'{process.returncode} {summary}')
        if summary['verdict'] == 'child':
            texts = [event['text'] for event in summary['events']]
            check(summary['child']['exit_code'] == 9 and not any('TERM' in text for text in texts), str(texts))
        bench.set_permit(f'owner={"RX-TP2SAFE"}\n')


@case('53', 'signals go through descriptors of processes, except to the group that is still reserved')
def signals_by_pidfd(bench):
    from tracing import trace
    job = DOUBLE_FORK.format(body='time.sleep(60)', rest='time.sleep(60)')
    process, calls = trace(bench, ['kill', 'pidfd_send_signal', 'tgkill', 'tkill'], job=job,
                           options=('--cap-ms', '2500'))
    bench.finish(process, 124, 20)
    lines = [line for line in calls() if '+++' not in line and '---' not in line]
    job_id = job_pid(bench)
    kills = [line for line in lines if ' kill(' in line and f'kill(-{job_id},' not in line]
    # The one other kill is to the telemetry helper, a child that is not reaped yet.
    check(all('SIGTERM' in line for line in kills) and len(kills) <= 1, f'signals by number: {kills}')
    check(any('pidfd_send_signal' in line for line in lines), 'the double-forked one by descriptor')


@case('-', 'the job reads nothing, leads its own group and dies with a signal of its own as 128+n')
def own_signal(bench):
    code, out, _ = bench.run('import os, sys; print(sys.stdin.read() == "", os.getpgrp() == os.getpid(), flush=True); '
                             'os.kill(os.getpid(), 11)')
    check(code == 139 and out.split() == [b'True', b'True'], f'{code} {out}')
    check(bench.expect_verdict('child')['child'] == {'exit_code': None, 'signal': 11}, 'child')


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
    process.communicate(timeout=10)
    check(not pids_with(marker), f'left: {pids_with(marker)}')

