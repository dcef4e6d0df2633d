"""Reads what `session_worker.py` prints about its steps."""

import time


def steps_of(processes, name):
    """Returns a worker's last report: time, step, and the largest value of all rows."""
    lines = [each.split() for each in processes.output(name).splitlines(keepends=True)]
    found = [each[1:] for each in lines if each[:1] == ["STEP"] and len(each) == 4]
    return [(float(when), int(step), float(most)) for when, step, most in found]


def wait_for_steps(processes, name, count, since=0.0):
    """Waits until a worker has done new steps."""
    end = time.monotonic() + 180
    while True:
        times = [when for when, _, _ in steps_of(processes, name) if when > since]
        if len(times) >= count:
            return
        assert processes.processes[name].poll() is None, processes.output(name)[-3000:]
        assert time.monotonic() < end, processes.output(name)[-3000:]
        time.sleep(0.1)
