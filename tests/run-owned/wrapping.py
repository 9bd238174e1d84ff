"""Inside a namespace with 400 process numbers: runs of run-owned whose jobs start and end processes without pause,
beside bystanders that do the same. Prints how often the numbers went around; 1 when a bystander got a signal.

usage: wrapping.py PERMIT COMMANDS   (COMMANDS: a Python list of commands of run-owned)
"""
import ast
import os
import subprocess
import sys
import threading
import time

COUNT = 400
# A bystander's end: 0 as planned, else the signal it got.
ends = []
highest = 0
wraps = 0
is_over = threading.Event()


def bystand():
    """Bystanders one after the other, as short-lived as the job's processes."""
    global highest, wraps
    while not is_over.is_set():
        pid = os.posix_spawn('/bin/sleep', ['sleep', '0.01'], {})
        if pid < highest:
            wraps += 1
        highest = pid
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def one(permit, command):
    with open(permit, 'w') as file:
        file.write('RX-TP2SAFE')
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(1)
    os.truncate(permit, 0)
    with open(permit, 'w') as file:
        file.write('SOMEBODY')
    _, err = process.communicate(timeout=30)
    return process.returncode, err.decode(errors='replace')


def main():
    with open('/proc/sys/kernel/pid_max', 'w') as file:
        file.write(str(COUNT))
    thread = threading.Thread(target=bystand)
    thread.start()
    try:
        results = [one(sys.argv[1], command) for command in ast.literal_eval(sys.argv[2])]
    finally:
        is_over.set()
        thread.join()
    print(f'{len(ends)} bystanders, numbers wrapped {wraps} times, runs ended {[code for code, _ in results]}')
    hurt = [end for end in ends if end != 0]
    if any(code != 123 for code, _ in results):
        print(results)
    return 1 if hurt or wraps < 2 or any(code != 123 for code, _ in results) else 0


if __name__ == '__main__':
    sys.exit(main())
