"""strace as a test tool: calls that fail, calls that wait, calls that are listed."""
import os
import shutil
import subprocess

from bench import WAIT, Failure, Skip, wait_for


def _strace(bench, job, flags, **kwargs):
    if shutil.which('strace') is None:
        raise Skip('needs strace')
    if subprocess.run(['strace', '-o', '/dev/null', 'true'], capture_output=True, check=False).returncode != 0:
        raise Skip('needs the right to trace processes')
    out = bench.path('trace')
    words = ['strace', '-f', '-s', '4096', '-o', out, *flags, *bench.arguments(job, **kwargs)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               # The leak check of the address sanitizer cannot run under a tracer.
                               env=dict(os.environ, ASAN_OPTIONS='detect_leaks=0'))
    bench.started.append(process)
    return process, out


def trace(bench, names, job='pass', **kwargs):
    """The process, and a function that gives the traced lines so far."""
    process, out = _strace(bench, job, ['-e', 'trace=' + ','.join(names)], **kwargs)

    def calls():
        with open(out, errors='replace') as file:
            return file.read().splitlines()
    return process, calls


def with_failing_call(bench, name, error, job=WAIT):
    """A running job whose tool gets `error` from every call of `name`."""
    process, _ = _strace(bench, job, ['-e', f'trace={name}', '-e', f'inject={name}:error={error}'])
    wait_for(lambda: process.poll() is not None or 'running' in bench.log_text(), 'the job runs')
    if process.poll() is not None:
        raise Failure(f'ended early: {process.communicate()}')
    return process


def at_first_call(bench, name, action, expected):
    """Runs action() while the tool waits at the entry of its first call of `name`."""
    process, out = _strace(bench, 'print("ran")', ['-e', f'trace={name}', '-e',
                                                   f'inject={name}:delay_enter=700000:when=1'])
    # The line of a delayed call is begun at once and ended after it.
    wait_for(lambda: os.path.exists(out) and name in open(out).read(), f'the call of {name}')
    action()
    bench.finish(process, expected, 20)
