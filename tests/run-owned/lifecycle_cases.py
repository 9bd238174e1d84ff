"""Rows 20 to 22, 36, 37, 42 and 47: how jobs end."""
import fcntl
import os
import pty
import signal
import termios
import time

from bench import IGNORE_TERM, Skip, check, guard_of, is_alive, send, wait_for
from cases import both_ways, case
from jobs import DOUBLE_FORK, job_pid, number_after, stopped_by_permit


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
        bench.check_time(time.monotonic() - begin < 1, f'alive after 1 s: {pids}')
        check(time.monotonic() - begin < 30, f'alive after 30 s: {pids}')
    wait_for(lambda: not bench.is_locked(0) and not bench.is_locked(1), 'the locks are free')


@case('20', 'SIGKILL of the whole process group of run-owned does not reach the guard')
def group_killed(bench):
    process = bench.start_waiting(start_new_session=True)
    pid = job_pid(bench)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not is_alive(pid), 'the job is dead')
    wait_for(lambda: not bench.is_locked(0), 'the locks are free')


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
    check('SIGTERM while stopping: no grace' in bench.log_text(), bench.log_text())
    bench.check_time(time.monotonic() - begin < 4, 'it waits for the grace')


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
    check(process.wait(60) == 129, f'exit {process.returncode}')
    check(not is_alive(pid), 'the job is left')
    bench.expect_verdict('signal')


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


@case('37', 'a helper that ends a moment after the job is no leftover', timed=True)
def settles(bench):
    check(bench.run(['sh', '-c', 'sleep 0.08 & exit 6'])[0] == 6, 'the code of the job')


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


@case('-', 'the job reads nothing, leads its own group and dies with a signal of its own as 128+n')
def own_signal(bench):
    code, out, _ = bench.run('import os, sys; print(sys.stdin.read() == "", os.getpgrp() == os.getpid(), flush=True); '
                             'os.kill(os.getpid(), 11)')
    check(code == 139 and out.split() == [b'True', b'True'], f'{code} {out}')
    check(bench.expect_verdict('child')['child'] == {'exit_code': None, 'signal': 11}, 'child')
