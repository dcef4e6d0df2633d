"""Shows where the time of a training step goes: traces DLRM in TensorFlow's profiler.

Prints the time per step of each kind of operation, and the time in which no operation ran. Run
`python scripts/profile_step.py --out FOLDER`; with the package `tensorboard-plugin-profile`,
`tensorboard --logdir FOLDER` shows the same trace.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from dlrm import model_of, synthetic_log

STEPS, WARM = 100, 30
OPERATION = re.compile(r"[^:]+:(_?[A-Z]\w*)")  # the trace calls an operation `name:kind`
MOST = 12  # lines of the table
#: Parts of the step, and the operations that belong to them.
PARTS = {
    "lookup of the 26 tables": ("DeLookupFeatures",),
    "gradients of the 26 tables": ("DeLookupFeaturesGradient",),
    "updates of the 26 tables": ("DeTableApply", "DeTablesApply", "DeStepSettings"),
    "matrix products": ("MatMul", "BatchMatMulV2", "_FusedMatMul", "BatchMatMulV3"),
    "Adam of the dense layers": ("ResourceApplyAdam", "AssignSubVariableOp", "AssignAddVariableOp"),
}


def traced(folder: Path, batch: int, dim: int) -> float:
    """Trains DLRM and traces STEPS steps. Returns the wall time per step in ms."""
    log = synthetic_log(batch * 8)
    model = model_of(dim)
    inputs = {name: tf.constant(column) for name, column in log.inputs().items()}
    data = tf.data.Dataset.from_tensor_slices((inputs, tf.constant(log.clicks))).batch(batch)
    steps = data.cache().repeat().prefetch(2)
    model.fit(steps, steps_per_epoch=WARM, shuffle=False, verbose=0)
    begin = tf.timestamp()
    with tf.profiler.experimental.Profile(str(folder)):
        model.fit(steps, steps_per_epoch=STEPS, shuffle=False, verbose=0)
    return float(tf.timestamp() - begin) / STEPS * 1e3


def times_of(folder: Path) -> tuple[dict[str, float], float]:
    """Reads a trace.

    Returns:
        The ms per step of each kind of operation, without the operations that it contains; and the
        ms per step in which at least one operation ran.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    [file] = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    times: collections.Counter[str] = collections.Counter()
    busy: list[tuple[int, int]] = []
    [plane] = [each for each in space.planes if each.name == "/host:CPU"]
    names = {number: each.name for number, each in plane.event_metadata.items()}
    for line in plane.lines:
        ends: list[tuple[int, str]] = []  # the operations around the current one
        start = line.timestamp_ns * 1000
        for event in sorted(line.events, key=lambda each: (each.offset_ps, -each.duration_ps)):
            named = OPERATION.fullmatch(names[event.metadata_id])
            if named is None:
                continue
            kind = named[1]
            while ends and ends[-1][0] <= event.offset_ps:
                ends.pop()
            times[kind] += event.duration_ps
            if ends:
                times[ends[-1][1]] -= event.duration_ps
            else:
                busy.append((start + event.offset_ps, start + event.offset_ps + event.duration_ps))
            ends.append((event.offset_ps + event.duration_ps, kind))
    covered, last = 0, 0
    for begin, end in sorted(busy):
        covered += max(0, end - max(begin, last))
        last = max(last, end)
    return {kind: time / STEPS / 1e9 for kind, time in times.items()}, covered / STEPS / 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    """Traces and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="keep the trace here; default: do not keep it")
    parser.add_argument("--batch", type=int, default=1024, help="impressions per step")
    parser.add_argument("--dim", type=int, default=16, help="values per row (default 16)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        wall = traced(folder, options.batch, options.dim)
        times, covered = times_of(folder)
    total = sum(times.values())
    parts = {part: sum(times.pop(kind, 0.0) for kind in kinds) for part, kinds in PARTS.items()}
    rest = sorted(times.items(), key=lambda pair: -pair[1])
    print(f"| a step of {options.batch} impressions: {wall:.2f} ms | ms | of all operations |")
    print("|---|---|---|")
    for name, time in [*parts.items(), *rest[:MOST]]:
        print(f"| {name} | {time:.3f} | {time / total:.0%} |")
    print(f"| {len(rest) - MOST} other kinds | {sum(time for _, time in rest[MOST:]):.3f} | |")
    print(f"| all operations, on all threads | {total:.3f} | 100% |")
    print(f"| wall time without an operation: Python and TensorFlow | {wall - covered:.3f} | |")


if __name__ == "__main__":
    main()
