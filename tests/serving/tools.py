"""Runs external programs for the tests of the serving overlay."""

import shutil

from tests.support import commands
from tests.support.applies import applies_if
from tests.support.commands import ROOT

SERVING_OPS = ROOT / "serving_ops"


def run(command, timeout=600, cwd=ROOT, env=()):
    """Runs a command, which must succeed, and returns its output."""
    done = commands.run(*command, cwd=cwd, timeout=timeout, **dict(env))
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def needs(*programs):
    """Leaves out tests of programs that are large to install, where they are not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    return applies_if(not missing, f"the programs {', '.join(missing)}")
