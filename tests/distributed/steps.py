"""What `session_worker.py` tells of its steps while it trains for ever."""

import time


def steps_of(processes, name):
    """Returns what a worker has seen: when, at which step, and the greatest of all rows."""
    lines = [each.split() for each in processes.output(name).splitlines(keepends=True)]
    found = [each[1:] for each in lines if each[:1] == ["STEP"] and len(each) == 4]
    return [(float(when), int(step), float(most)) for when, step, most in found]


def wait_for_steps(processes, name, count, since=0.0, seconds=180):
    """Waits until a worker has done steps since then, and returns when the first was done."""
    end = time.monotonic() + seconds
    while True:
        times = [when for when, _, _ in steps_of(processes, name) if when > since]
        if len(times) >= count:
            return times[0]
        assert processes.processes[name].poll() is None, processes.output(name)[-3000:]
        assert time.monotonic() < end, processes.output(name)[-3000:]
        time.sleep(0.1)
