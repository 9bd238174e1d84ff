"""Rows 43 to 46 and 54: log, summary and the job's output; and what the binary may not contain."""
import os
import re
import shutil
import subprocess
import time

from bench import NAME, PYTHON, Skip, check, is_alive, wait_for
from cases import case


@case('43', 'an existing log is refused and unchanged; --append goes on in it')
def log_exists(bench):
    with open(bench.log, 'w') as file:
        file.write('old\n')
    code, _, err = bench.run('print("ran")')
    check(code == 125 and 'existing file' in err and bench.log_text() == 'old\n', f'{code} {err}')
    check(os.listdir(bench.path('locks')) == [], 'nothing is locked')
    check(bench.run('print("more")', options=('--append',))[0] == 0, 'appends')
    check(bench.log_text().startswith('old\n') and 'more' in bench.log_text().splitlines(), bench.log_text())


@case('44', 'a missing log folder is refused before locking')
def no_log_folder(bench):
    code, _, err = bench.run('print("ran")', log=bench.path('none', 'run.log'))
    check(code == 125 and 'folder' in err, f'{code} {err}')
    check(os.listdir(bench.path('locks')) == [], 'nothing is locked')


def small_disk(bench):
    folder = bench.path('small')
    os.mkdir(folder)
    done = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], capture_output=True, check=False)
    if done.returncode != 0:
        raise Skip('needs the right to mount a small tmpfs')
    return folder


@case('45', 'a full disk: the job goes on, samples are kept, summary on stderr, 125 if the job gave 0')
def disk_full(bench):
    folder = small_disk(bench)
    try:
        for code, expected in ((0, 125), (7, 7)):
            log = os.path.join(folder, f'log{code}')
            job = ('print("x" * 200000, flush=True); import time; time.sleep(0.5); print("last"); '
                   f'raise SystemExit({code})')
            got, out, err = bench.run(job, log=log)
            check(got == expected and out.endswith(b'last\n') and len(out) > 200000, f'{got}, {len(out)} bytes')
            check('No space left' in err and '"schema": "run-owned/1"' in err and '"last_samples"' in err, err[:500])
            check(f'"verdict": "{"log_failed" if code == 0 else "child"}"' in err, err[:500])
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
    finally:
        subprocess.run(['umount', folder], check=True)


@case('45', 'EIO on the log: the job goes on, the error is on stderr, 125 if the job gave 0')
def disk_broken(bench):
    from tracing import with_failing_call
    for code, expected in ((0, 125), (7, 7)):
        bench.log = bench.path(f'log{code}')
        process = with_failing_call(bench, ['write'], 'EIO', job=f'print("out"); raise SystemExit({code})',
                                    path=bench.log, when='2+')
        out, err = bench.finish(process, expected)
        check(out == b'out\n' and 'Input/output error' in err and '"last_samples"' in err, f'{out} {err[:500]}')
        check(bench.summary()['log_failure'] is not None, 'the summary says so')


@case('46', 'a closed stderr and a closed stdout change nothing')
def closed_streams(bench):
    def close():
        os.close(1)
        os.close(2)
    process = bench.start('import sys; print("out"); print("err", file=sys.stderr); raise SystemExit(3)',
                          stdout=None, stderr=None, preexec_fn=close)
    check(process.wait(10) == 3, f'exit {process.returncode}')
    check({'out', 'err'} <= set(bench.log_text().splitlines()), bench.log_text())


@case('46', 'a reader that goes away does not end the job')
def broken_pipe(bench):
    process = bench.start('import time\nfor i in range(50): print("x" * 4000, flush=True); time.sleep(0.01)\n'
                          'raise SystemExit(3)')
    process.stdout.close()
    process.stderr.close()
    check(process.wait(10) == 3, f'exit {process.returncode}')
    check(bench.log_text().count('x' * 4000) == 50, 'the log has all of it')
    process.stdout = process.stderr = None


@case('54', 'ten megabytes per second pass unchanged, and a slow reader slows the job, not run-owned')
def much_output(bench):
    job = ('import sys, time\nfor i in range(40):\n  sys.stdout.buffer.write(bytes([65 + i % 26]) * 262144)\n'
           '  sys.stdout.buffer.flush()\n  time.sleep(0.02)')
    code, out, _ = bench.run(job)
    check(code == 0 and len(out) == 40 * 262144, f'{code}, {len(out)} bytes')
    check(all(out[i * 262144] == 65 + i % 26 for i in range(40)), 'the order of bytes')


@case('54', 'with a reader that does not read, memory stays bounded and the permit is still watched')
def slow_reader(bench):
    process = bench.start_waiting('print("run" "ning", flush=True)\nwhile True: print("x" * 100000)')
    time.sleep(0.5)

    def resident_kib():
        with open(f'/proc/{process.pid}/status') as file:
            return int(re.search(r'VmRSS:\s+(\d+)', file.read()).group(1))
    before = resident_kib()
    time.sleep(0.7)
    check(resident_kib() - before < 4096, f'grew from {before} to {resident_kib()} KiB')
    begin = time.monotonic()
    bench.set_permit('owner=SOMEBODY\n')
    wait_for(lambda: 'stop: ' in bench.log_text() and not bench.is_locked(), 'the end')
    bench.check_time(time.monotonic() - begin < 5, 'it waits for the reader')
    bench.finish(process, 123)


@case('-', 'output and errors of the job arrive where they belong, and both in the log')
def streams(bench):
    code, out, err = bench.run('import sys; print("to out"); print("to err", file=sys.stderr)')
    check(code == 0 and out == b'to out\n' and 'to err' in err.splitlines(), f'{out} {err}')
    check('to out\n' in bench.log_text() and 'to err\n' in bench.log_text(), bench.log_text())
    last = r'run-owned: child exit 0 after 0m0\ds; peak 702 W; permit held; log '
    check(re.match(last, err.splitlines()[-1]), err)


@case('-', 'the summary line comes after the last words of a job that ends at once')
def last_line_is_last(bench):
    words = 'last words ' * 1500
    for number in range(8):
        log = bench.path(f'log{number}')
        code, _, err = bench.run(f'import sys; sys.stderr.write({words!r} + "\\n")', log=log)
        check(code == 0 and err.splitlines()[-1].startswith('run-owned: child exit 0'), err[-200:])
        check(bench.log_text(log).splitlines()[-1].startswith('# run-owned: child exit 0'), bench.log_text(log)[-200:])


@case('-', 'progress is one rewritten line, on demand or on a terminal')
def progress(bench):
    code, _, err = bench.run('import time; time.sleep(0.3)', options=('--progress', 'always'))
    check(code == 0 and re.search(r'\r\[pair 00:0\d/02:00\] ', err) and 'W  permit held' in err, repr(err))
    code, _, err = bench.run('pass', options=('--progress', 'auto'), log=bench.path('second'))
    check('\r' not in err, repr(err))


@case('-', '--print-config shows every value and its origin')
def print_config(bench):
    _, out, _ = bench.run('pass', options=('--print-config',))
    text = out.decode()
    check(re.search(r'cap-ms +=\s+120000 +# flag --cap-ms', text), text)
    check(re.search(r'permit-name +=\s+' + NAME + r' +# default', text), text)
    for mode, permit in (('pair', 'PAIR_OK'), ('solo', '')):
        words = [bench.tool, mode, '--append', '--exclusive=false', '--gpus', 'c4e7a371', '--print-config']
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        check(re.search(rf'^permit +=\s+{permit} +# default$', text, re.MULTILINE), text)
        check(re.search(r'^append +=\s+true +# flag --append$', text, re.MULTILINE), text)
        check(re.search(r'^exclusive +=\s+false +# flag --exclusive$', text, re.MULTILINE), text)


@case('-', 'usage errors are one line with a hint and exit 125; --help ends with 0')
def usage(bench):
    for words, text in ((['pair', '--gpu', 'x', '--', 'true'], 'did you mean --gpus'),
                        (['pair', '--gpus', 'c4e7a371,7744b44b', '--log', 'x'], 'COMMAND'),
                        (['pair', '--cap-ms', '840001', '--', 'true'], 'cap-ms'),
                        (['pair', '--gpus', 'c4e7a371,7744b44b', '--permit', '', '--log', 'x', '--', 'true'], 'a pair'),
                        (['pair', '--gpus', 'c4e7a371,,7744b44b', '--', 'true'], 'a comma between'),
                        (['pair', '--append=perhaps', '--print-config'], 'true or false'),
                        (['triple', '--', 'true'], 'run-owned')):
        done = subprocess.run([bench.tool, *words], capture_output=True, text=True, check=False)
        check(done.returncode == 125 and text in done.stderr and done.stderr.count('\n') == 1, f'{words}: {done}')
    done = subprocess.run([bench.tool, 'pair', '--help'], capture_output=True, text=True, check=False)
    check(done.returncode == 0 and '--permit' in done.stdout, str(done))


@case('-', 'the binary names no function that changes a card, no service manager and no other tool')
def structure(bench):
    with open(bench.tool, 'rb') as file:
        content = file.read()
    for banned in (rb'nvmlDeviceSet', rb'nvmlDeviceReset', rb'nvmlDeviceClear', rb'nvmlSystemSet', rb'nvmlUnit',
                   rb'nvmlGpuInstanceDestroy', rb'nvidia-smi', rb'systemctl', rb'org\.freedesktop', rb'libsystemd',
                   rb'dbus'):
        check(re.search(banned, content) is None, f'the binary holds {banned!r}')
    names = set(re.findall(rb'nvml[A-Z]\w+', content))
    calls = {name for name in names if re.fullmatch(rb'nvml(Device|System)\w+|nvml(Init|Shutdown)\w*', name)}
    check(len(calls) >= 15, f'the search finds what is there: {sorted(calls)}')
    check(all(re.match(rb'nvml(DeviceGet|SystemGet|Init_v2|Shutdown)', name) for name in calls), f'{sorted(calls)}')
    if shutil.which('nm'):
        symbols = subprocess.run(['nm', '-D', '--undefined-only', bench.tool], capture_output=True, text=True,
                                 check=True).stdout
        check('nvml' not in symbols and 'sd_' not in symbols.replace('_ZNS', ''), 'no such symbol is needed')


@case('-', 'run-owned executes the command and nothing else')
def executes_only_the_command(bench):
    from tracing import trace
    process, calls = trace(bench, ['execve', 'execveat', 'connect'], job=['/bin/true'])
    bench.finish(process, 0, 20)
    executed = [line for line in calls() if 'execve' in line]
    check(len(executed) == 2 and '/bin/true' in executed[1], f'{executed}')
    check(not [line for line in calls() if 'connect(' in line], 'no connection is made')


@case('-', 'nothing but log, telemetry, summary and lock files is left behind')
def nothing_left(bench):
    before = set(os.listdir('/sys/fs/cgroup')) if os.path.isdir('/sys/fs/cgroup') else set()
    marker = f'sleep-{time.monotonic_ns()}'
    check(bench.run([PYTHON, '-S', '-c', f'"{marker}"'])[0] == 0, 'runs')
    left = sorted(name for name in os.listdir(bench.root) if name.startswith('run.log'))
    check(left == ['run.log', 'run.log.summary.json', 'run.log.telemetry.jsonl'], f'{left}')
    group = bench.summary()['control_group']
    check(group is None or not os.path.exists(group), 'the control group is gone')
    check(set(os.listdir('/sys/fs/cgroup')) >= before if before else True, 'others are untouched')
    check(not is_alive(0), 'pid 0 is nobody')
