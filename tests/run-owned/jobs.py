"""Jobs that tests of run-owned start, and what is known of them from outside."""
import re

from bench import check, is_alive, wait_for

# Leaves a process in another session behind, adopted by nobody of the job, and goes on when that one has begun.
DOUBLE_FORK = '''
import os, time
told, telling = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("run" "ning", os.getpid(), flush=True)
        os.write(telling, b"1")
        {body}
    os._exit(0)
os.read(told, 1)
{rest}
'''
# Children of a session of their own that live for a moment: their numbers are free again at once.
CHURN = '''
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("run" "ning", flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.005)
        os._exit(0)
    time.sleep(0.001)
'''

# Every process forks as fast as it can, for ever, in a session of its own; politely where there is no room.
BOMB = '''"{marker}"
import os, time
os.nice(10)
print("run" "ning", flush=True)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: time.sleep(0.01)
'''
BOMB_SIZE = 60


def number_after(bench, word):
    """The number behind a line's start in the log; the job's output may reach it before or after
    run-owned's own lines."""
    found = wait_for(lambda: re.search(rf'^{word}(\d+)\n', bench.log_text(), re.MULTILINE), f'"{word}" in the log')
    return int(found.group(1))


def job_pid(bench):
    text = wait_for(lambda: 'job started: pid ' in bench.log_text() and bench.log_text(), 'a started job')
    return int(text.split('job started: pid ', 1)[1].split(',')[0])


def shift(bench, boot_s):
    """Moves the boot clock of a run that was started with env=bench.shift_clocks(0, 0)."""
    bench.shift_clocks(boot_s, boot_s)


def stopped_by_permit(bench, job, options=()):
    """The job runs, the permit goes, everything is gone. Returns the pid that the job printed."""
    process = bench.start_waiting(job, options=options)
    pid = number_after(bench, 'running ')
    check(is_alive(pid), 'the job runs')
    bench.set_permit('owner=SOMEBODY\n')
    bench.finish(process, 123)
    check(not is_alive(pid), f'{pid} is left: {bench.log_text()}')
    return pid
