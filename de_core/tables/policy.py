"""Combines a `Variable`'s metadata columns, admission policy and eviction policies."""

from __future__ import annotations

import dataclasses

from de_core.base.checks import received
from de_core.tables.admission import Admission
from de_core.tables.eviction import COLUMNS, Eviction

#: Owner of the metadata columns, which the library stores as slots.
RESERVED_OWNER = "de"
#: Owner of the slot that is not zero in frozen rows, and the slot.
FREEZE_OWNER = f"{RESERVED_OWNER}/freeze"
FROZEN = f"{FREEZE_OWNER}/frozen"
#: The metadata column that counts a row's uses.
USES = f"{RESERVED_OWNER}/uses"


def is_reserved(slot: str) -> bool:
    """Returns whether a slot, "owner/name", is one of the library itself, not of an optimizer."""
    return slot.startswith(f"{RESERVED_OWNER}/")


@dataclasses.dataclass(frozen=True)
class TablePolicy:
    """The policies of one Variable.

    Attributes:
        columns: Names of the metadata columns that a restrict policy needs.
        admission: Decides which keys get a row; None admits all keys.
        evictions: Decide which rows are removed.
    """

    columns: tuple[str, ...] = ()
    admission: Admission | None = None
    evictions: tuple[Eviction, ...] = ()

    @property
    def rank_column(self) -> str:
        """The column that ranks rows for eviction, or an empty string."""
        ranked = [each.column for each in self.evictions if each.column]
        return next(iter([*ranked, *self.columns]), "")

    @property
    def counts_uses(self) -> bool:
        """True if the rows have the column `USES`."""
        return "uses" in (*self.columns, *(each.column for each in self.evictions))

    @property
    def counts_lookups(self) -> bool:
        """True if a lookup counts as a use."""
        return any(getattr(each, "count_lookups", False) for each in self.evictions)

    @property
    def expires(self) -> bool:
        """True if rows have a time to live."""
        return any(not each.column for each in self.evictions)

    @property
    def asks_each_step(self) -> bool:
        """True if an optimizer step that is computed outside the table must call `begin_step`."""
        return self.admission is not None or self.expires

    def text(self, index: int, tables: int) -> str:
        """Returns the engine's settings for shard `index` of `tables` shards, as text.

        Example:
        >>> import de_core as de
        >>> TablePolicy(("time",), de.AdmissionCount(2)).text(0, 1)
        'time=1;admission=1;min_count=2'
        """
        unknown = [column for column in self.columns if column not in COLUMNS]
        if unknown:
            raise ValueError(
                f"A restrict policy's `columns` must be among {', '.join(COLUMNS)}. "
                + received(columns=self.columns)
            )
        fields: dict[str, int] = dict.fromkeys(self.columns, 1)
        if self.admission is not None:
            fields.update(self.admission.fields(tables))
        for each in self.evictions:
            fields.update(each.fields(index, tables))
        return ";".join(f"{name}={value}" for name, value in fields.items())
