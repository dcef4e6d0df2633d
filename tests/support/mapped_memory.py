"""Counts the memory that a process has asked the system for.

It does not depend on what is resident at the moment, so other processes do not change it. A process
of its own is best (`Forks`): there, no other test frees memory meanwhile.
"""

import re
from pathlib import Path

#: A private writable mapping without a file: `begin-end rw-p offset 00:00 0 [heap]`.
_ANONYMOUS = re.compile(r"^(\w+)-(\w+) rw-p \w+ 00:00 0\b", re.MULTILINE)


def mapped_bytes() -> int:
    text = Path("/proc/self/maps").read_text("ascii")
    return sum(int(end, 16) - int(begin, 16) for begin, end in _ANONYMOUS.findall(text))
