"""strace as a test tool: calls that fail, a process that is held between two of its calls, calls that are listed."""
import os
import shutil
import signal
import subprocess

from bench import WAIT, Failure, Skip, wait_for


def _strace(bench, job, flags, **kwargs):
    if shutil.which('strace') is None:
        raise Skip('needs strace')
    probe = ['strace', '-f', FILTER, '-o', '/dev/null', 'true']
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        raise Skip('needs the right to trace processes')
    out = bench.path('trace')
    # The leak check of the address sanitizer cannot run under a tracer.
    env = dict(kwargs.pop('env', os.environ), ASAN_OPTIONS='detect_leaks=0')
    words = ['strace', '-f', '-s', '4096', '-o', out, *flags, *bench.arguments(job, **kwargs)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    bench.started.append(process)
    return process, out


# Without it every call stops, and a guard that reads the process table is slow enough to be replaced. Signals of the
# tracer need every call.
FILTER = '--seccomp-bpf'


def _lines(out):
    if not os.path.exists(out):
        return []
    with open(out, errors='replace') as file:
        return file.read().splitlines()


def trace(bench, names, job='pass', **kwargs):
    """The process, and a function that gives the traced lines so far."""
    process, out = _strace(bench, job, [FILTER, '-e', 'trace=' + ','.join(names)], **kwargs)
    return process, lambda: _lines(out)


def with_failing_call(bench, names, error, job=WAIT, path=None, when='1+', **kwargs):
    """A process whose calls of `names`, of `path` only if given, fail with `error`: `when` counts them from 1."""
    names = ','.join(names)
    where = ['-P', path] if path else []
    inject = f'inject={names}:error={error}:when={when}'
    return _strace(bench, job, [FILTER, *where, '-e', f'trace={names}', '-e', inject], **kwargs)[0]


def wait_until_running(bench, process):
    wait_for(lambda: process.poll() is not None or 'running' in bench.log_text(), 'the job runs')
    if process.poll() is not None:
        raise Failure(f'ended early: {process.communicate()}')


def held_after_call(bench, name, action, expected, path=None, when='1', job='print("ran")'):
    """Runs action() whenever the tool is held right after its call number `when` of `name`, of `path` only if given;
    then the rest of the run. Returns its errors."""
    where = ['-P', path] if path else []
    process, out = _strace(bench, job, [*where, '-e', f'trace={name}', '-e', f'inject={name}:signal=STOP:when={when}'])
    held = 0

    def holder():
        stops = [line for line in _lines(out) if '--- stopped by SIGSTOP' in line]
        return int(stops[held].split()[0]) if len(stops) > held else None
    wait_for(lambda: holder() or process.poll() is not None, f'a call of {name}')
    while process.poll() is None:
        pid = holder()
        if pid is None:
            wait_for(lambda: holder() or process.poll() is not None, 'the end')
            continue
        action()
        held += 1
        os.kill(pid, signal.SIGCONT)
    if held == 0:
        raise Failure(f'{name} was never called: {process.communicate()}')
    return bench.finish(process, expected)[1]
