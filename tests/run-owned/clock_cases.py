"""Rows 33 to 35, 48 and 49: the cap, whatever the clocks and the debuggers do, and what happens at once with it."""
import ctypes
import os
import signal
import time

from bench import IGNORE_TERM, Skip, check, guard_of, is_alive, send, wait_for
from cases import both_ways, case
from jobs import job_pid, shift


@both_ways('33', 'with the defaults TERM comes at 13:45, KILL at 13:55, and nothing is alive at 14:00')
def default_cap(bench, options):
    defaults = ['--progress', 'never', '--sample-period-ms', '100']
    process = bench.start_waiting(IGNORE_TERM, quick=defaults, options=options, env=bench.shift_clocks(0, 0))
    pid = job_pid(bench)
    # Real time passes as well: less than the seconds between the looks, more than none.
    shift(bench, 13 * 60)
    time.sleep(0.5)
    check('TERM and CONT' not in bench.log_text() and is_alive(pid), f'before its time: {bench.log_text()}')
    shift(bench, 13 * 60 + 45)
    wait_for(lambda: 'TERM and CONT' in bench.log_text(), 'TERM')
    check(' KILL' not in bench.log_text() and is_alive(pid), f'no grace: {bench.log_text()}')
    shift(bench, 13 * 60 + 55)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(not is_alive(pid) and summary['child']['signal'] == 9, f'{summary["child"]}')
    check(summary['cap_s'] == 840, f'cap {summary["cap_s"]} s')
    bench.check_time(summary['duration_s'] < 840, f'alive for {summary["duration_s"]} s')


@case('33', 'the cap ends the job: 124, nothing alive at the cap', timed=True)
def cap(bench):
    process = bench.start_waiting(options=('--cap-ms', '1200'))
    pid = job_pid(bench)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(0.5 <= summary['duration_s'] <= 1.2, f'{summary["duration_s"]} s')
    check(not is_alive(pid), 'the job is left')


@case('33', 'a job that ignores TERM is dead at the cap, too', timed=True)
def cap_ignoring(bench):
    process = bench.start_waiting(IGNORE_TERM, options=('--cap-ms', '1200'))
    pid = job_pid(bench)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(0.8 <= summary['duration_s'] <= 1.2, f'{summary["duration_s"]} s')
    check(not is_alive(pid) and summary['child']['signal'] == 9, 'KILL ended it')


@case('34', 'a wall clock that jumps by an hour changes nothing and is noted')
def wall_jump(bench):
    process = bench.start_waiting(bench.patient_job(3), env=bench.shift_clocks(0, 0), options=('--cap-ms', '840000'))
    bench.shift_clocks(3600, 0)
    wait_for(lambda: 'jumped by +3600' in bench.log_text(), 'a note of the jump')
    bench.shift_clocks(-3600, 0)
    wait_for(lambda: 'jumped by -7200' in bench.log_text(), 'a note of the jump back')
    bench.release()
    bench.finish(process, 3)
    summary = bench.expect_verdict('child')
    check(0 <= summary['duration_s'] < 60 and not summary['is_telemetry_lost'], f'{summary["duration_s"]} s')


@case('34', 'neither cap nor permit follow the wall clock: both work with one that stands an hour off')
def wall_jump_then_end(bench):
    for number, (jump_s, end, code) in enumerate(((3600, lambda: shift_only_boot(bench, 3600, 840), 124),
                                                  (-3600, lambda: bench.set_permit('owner=SOMEBODY\n'), 123))):
        bench.log = bench.path(f'log{number}')
        process = bench.start_waiting(env=bench.shift_clocks(0, 0), options=('--cap-ms', '840000'))
        bench.shift_clocks(jump_s, 0)
        wait_for(lambda: 'the wall clock jumped' in bench.log_text(), 'a note of the jump')
        end()
        bench.finish(process, code)


def shift_only_boot(bench, wall_s, boot_s):
    bench.shift_clocks(wall_s + boot_s, boot_s)


@case('34', 'no wait of run-owned is on the wall clock')
def no_wall_waits(bench):
    from tracing import trace
    process, calls = trace(bench, ['futex', 'timerfd_create', 'clock_nanosleep', 'timer_create'],
                           job='import time; time.sleep(0.3)')
    bench.finish(process, 0)
    own = [line for line in calls() if 'CLOCK_REALTIME' in line and 'timeout' not in line and 'NULL' not in line]
    check(not own, f'waits on the wall clock: {own[:3]}')


@case('35', 'time suspended while the job is being started counts, too')
def suspended_at_the_start(bench):
    env = bench.shift_clocks(0, 0)
    shifts = env['LD_PRELOAD'] + '.shift'
    # Sooner than run-owned can hear that the job runs.
    job = f'open({shifts!r} + ".new", "w").write("3600 3600\\n"); import os, time; ' \
          f'os.rename({shifts!r} + ".new", {shifts!r}); time.sleep(60)'
    begin = time.monotonic()
    process = bench.start(job, env=env, options=('--cap-ms', '600000'))
    bench.finish(process, 124)
    bench.expect_verdict('cap')
    bench.check_time(time.monotonic() - begin < 5, 'it waits on')


@case('35', 'suspended time counts: the cap fires at resume')
def suspended(bench):
    process = bench.start_waiting(env=bench.shift_clocks(0, 0), options=('--cap-ms', '600000'))
    begin = time.monotonic()
    shift(bench, 3600)
    bench.finish(process, 124)
    bench.expect_verdict('cap')
    bench.check_time(time.monotonic() - begin < 2, 'it waits on')


@both_ways('35', 'nothing runs while an hour passes: at resume a job that ignores TERM is killed without grace')
def suspended_whole(bench, options):
    process = bench.start_waiting(IGNORE_TERM, env=bench.shift_clocks(0, 0),
                                  options=('--cap-ms', '600000', '--grace-ms', '60000', *options))
    pid = job_pid(bench)
    everybody = [process.pid, guard_of(process), pid]
    for one in everybody:
        os.kill(one, signal.SIGSTOP)
    shift(bench, 3600)
    for one in reversed(everybody):
        os.kill(one, signal.SIGCONT)
    bench.finish(process, 124)
    summary = bench.expect_verdict('cap')
    check(not is_alive(pid) and summary['child']['signal'] == 9, f'{summary["child"]}')


@case('35', 'a suspension shorter than the cap shortens what is left, and the job goes on')
def suspended_briefly(bench):
    process = bench.start_waiting(env=bench.shift_clocks(0, 0), options=('--cap-ms', '600000'))
    shift(bench, 500)
    time.sleep(0.5)
    check('TERM and CONT' not in bench.log_text() and process.poll() is None, f'ended early: {bench.log_text()}')
    shift(bench, 600)
    bench.finish(process, 124)


@case('49', 'a permit withdrawn while the cap ends the job: the grace goes on and the cap is the verdict')
def permit_during_cap(bench):
    # Longer than the guard may take for an answer.
    options = ('--cap-ms', '840000', '--grace-ms', '3000')
    process = bench.start_waiting(IGNORE_TERM, options=options, env=bench.shift_clocks(0, 0))
    shift(bench, 837)
    wait_for(lambda: 'TERM and CONT' in bench.log_text(), 'TERM')
    begin = time.monotonic()
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 124)
    bench.expect_verdict('cap')
    check(time.monotonic() - begin > 2, 'the grace is given')


@case('48', 'run-owned stopped by a signal: the guard enforces the cap')
def monitor_stopped(bench):
    monitor_held(bench, lambda process: process.send_signal(signal.SIGSTOP),
                 lambda process: process.send_signal(signal.SIGCONT))


@case('48', 'run-owned held by a debugger: the guard enforces the cap')
def monitor_traced(bench):
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    attach, detach, interrupt = 0x4206, 17, 0x4207  # PTRACE_SEIZE, _DETACH, _INTERRUPT

    def hold(process):
        if ptrace(attach, process.pid, None, None) != 0:
            raise Skip('needs the right to trace processes')
        check(ptrace(interrupt, process.pid, None, None) == 0, 'interrupted')
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def let_go(process):
        check(ptrace(detach, process.pid, None, None) == 0, 'let go')
    monitor_held(bench, hold, let_go)


def monitor_held(bench, hold, let_go):
    process = bench.start_waiting(options=('--cap-ms', '840000'), env=bench.shift_clocks(0, 0))
    pid = job_pid(bench)
    hold(process)
    shift(bench, 840)
    wait_for(lambda: not is_alive(pid), 'the job is dead')
    check(bench.is_locked(0), 'the locks are held while run-owned is held')
    let_go(process)
    bench.finish(process, 124)
    bench.expect_verdict('cap')


@case('49', 'the job ends, then the permit goes, and the guard learns both at once: the code of the job')
def both_at_once(bench):
    process = bench.start_waiting(bench.patient_job(9))
    pid = job_pid(bench)
    guard = guard_of(process)
    send(guard, signal.SIGSTOP)
    bench.release()
    wait_for(lambda: not is_alive(pid), 'the end of the job')
    bench.set_permit('owner=SOMEBODY\n')
    wait_for(lambda: 'stop: ' in bench.log_text(), 'the stop')
    send(guard, signal.SIGCONT)
    bench.finish(process, 9)
    texts = [event['text'] for event in bench.expect_verdict('child')['events']]
    check(any(text.startswith('stop: ') for text in texts), f'the order is in the summary: {texts}')


@case('49', "the job's own code wins when it ended before the cap", timed=True)
def same_instant(bench):
    for number in range(6):
        log = bench.path(f'log{number}')
        job = f'import time; print("run" "ning", flush=True); time.sleep({0.25 + number * 0.02}); raise SystemExit(9)'
        process = bench.start_waiting(job, log=log, options=('--cap-ms', '850'))
        process.communicate(timeout=60)
        summary = bench.summary(log)
        expected = {'child': 9, 'cap': 124}[summary['verdict']]
        check(process.returncode == expected == summary['exit_code'], f'{process.returncode} {summary}')
        if summary['verdict'] == 'child':
            texts = [event['text'] for event in summary['events']]
            check(summary['child']['exit_code'] == 9 and not any('TERM' in text for text in texts), str(texts))
        bench.set_permit(f'owner={"RX-TP2SAFE"}\n')
