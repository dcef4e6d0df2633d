"""Reads the numbers of tables, and their changes since the last reading."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from de_core.base.checks import check_integer, require_eager
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Target
from de_core.checkpoint.targets import tables_of
from de_core.tables.sharded import ShardedTable
from de_core.variable.inspection import stats_of

#: Numbers that only grow while a table exists.
COUNTERS = (
    "inserted",
    "evicted",
    "expired",
    "refused",
    "hits",
    "misses",
    "lookups",
    "lookup_seconds",
    "updates",
    "update_seconds",
)
PERCENTILES = (50, 90, 99)


class Monitor:
    """Reads the numbers of the tables of a model.

    Args:
        target: A Variable, a list or dict of Variables, a module, a layer or a model.
        sample: The number of rows per table whose norms `read` computes. 0 for none.

    Attributes:
        row_norms: The L2 norms of the sampled rows of the last reading, float64 [n] per table.

    Raises:
        TypeError: `target` is none of these, or `sample` is not an integer.
        ValueError: `target` has no tables, or `sample` is negative.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=2, name="users")
    >>> monitor = de.metrics.Monitor(users)
    >>> users.upsert([7], [[3.0, 4.0]])
    >>> rows = users.lookup([7, 8])
    >>> numbers = monitor.read()["users"]
    >>> numbers["rows"], numbers["inserted"], numbers["hit_rate"], numbers["row_norm_p50"]
    (1, 1, 0.5, 5.0)
    """

    def __init__(self, target: Target, sample: int = 4096) -> None:
        check_integer("sample", sample, 0)
        self._tables = tables_of(target)
        self._sample = sample
        self._before = {name: _counts(table) for name, table in self._tables.items()}
        self._inserted = dict.fromkeys(self._tables, 0)
        self.row_norms: dict[str, npt.NDArray[np.float64]] = {}

    @no_autograph
    def read(self) -> dict[str, dict[str, float]]:
        """Returns the numbers of each table by its name. Eager mode only.

        Returns:
            A dict per table. Since the table was made: `evicted` rows; `expired`, the expired
            ones among them; `refused` writes; `hits` and `misses`, looked-up keys with and without
            a row; `lookups` and `updates`, ops, with their wall time `lookup_seconds` and
            `update_seconds`. Since this object was made: `inserted` rows, without rows that
            your program removed meanwhile. Now: `rows`, `bytes`, `load_factor`, and percentiles of
            the norms of sampled rows, such as `row_norm_p50`, and `row_norm_max`. Since the last
            reading: `hit_rate` and `miss_rate`, if keys were looked up, and `gradient_norm`, the
            mean norm of the gradients of every 16th step.

        Raises:
            RuntimeError: Called in a graph, for example in a `tf.function`.
        """
        return {name: self._read(name, table) for name, table in self._tables.items()}

    def _read(self, name: str, table: ShardedTable) -> dict[str, float]:
        before, now = self._before[name], _counts(table)
        self._before[name] = now
        change = {part: now[part] - before[part] for part in now}
        self._inserted[name] += max(0, int(change["rows"] + change["evicted"]))
        numbers = {
            **{part: now[part] for part in ("rows", "bytes", "load_factor")},
            "inserted": self._inserted[name],
            **{part: now[part] for part in COUNTERS if part != "inserted"},
        }
        if change["hits"] + change["misses"]:
            numbers["hit_rate"] = change["hits"] / (change["hits"] + change["misses"])
            numbers["miss_rate"] = 1.0 - numbers["hit_rate"]
        if change["gradients_read"]:
            numbers["gradient_norm"] = change["gradient_norms"] / change["gradients_read"]
        norms = _norms(table, self._sample)
        if len(norms):
            self.row_norms[name] = norms
            for percent, value in zip(PERCENTILES, np.percentile(norms, PERCENTILES), strict=True):
                numbers[f"row_norm_p{percent}"] = float(value)
            numbers["row_norm_max"] = float(norms.max())
        return numbers


def _counts(table: ShardedTable) -> dict[str, float]:
    require_eager("read", "Call it outside of the function.")
    stats = stats_of(table)
    bytes_in_use = stats.pop("memory")["total"]
    del stats["probe_lengths"]
    return {**stats, "bytes": bytes_in_use}


def _norms(table: ShardedTable, sample: int) -> npt.NDArray[np.float64]:
    """Returns the norms of at most `sample` rows. Rows are in the order of their hashes."""
    values: list[npt.NDArray[np.float64]] = []
    if sample and table.spec.value_dtype.is_floating and not table.router.is_spread:
        count = 0
        for _, rows in table.export_batches():
            values.append(tf.cast(rows, tf.float64).numpy())
            count += len(rows)
            if count >= sample:
                break
    if not values:
        return np.zeros(0)
    norms: npt.NDArray[np.float64] = np.linalg.norm(np.concatenate(values)[:sample], axis=1)
    return norms
