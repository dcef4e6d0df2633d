"""What the tables of a `Variable` remember of their rows, admit and give up: all of it together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from de_core.base.checks import received
from de_core.tables.admission import Admission
from de_core.tables.eviction import COLUMNS, Eviction


@dataclasses.dataclass(frozen=True)
class TablePolicy:
    """The policies of one Variable.

    Attributes:
        columns: Names of the metadata columns that a restrict policy asks for.
        admission: Which keys get a row; None for all.
        evictions: Which rows go.
    """

    columns: tuple[str, ...] = ()
    admission: Admission | None = None
    evictions: tuple[Eviction, ...] = ()

    @classmethod
    def checked(cls, columns: Iterable[str], admission: Any, eviction: Any) -> TablePolicy:
        """Makes the policy of a user's arguments.

        Args:
            columns: See the attribute.
            admission: None or one policy.
            eviction: None, one policy or several.

        Raises:
            TypeError: An argument is no policy.
            ValueError: Two of them say the same thing.
        """
        if admission is not None and not isinstance(admission, Admission):
            raise TypeError(
                "`admission` must be a policy such as de.AdmissionCount(2), or None. "
                + received(admission=admission)
            )
        if eviction is None:
            evictions: tuple[Any, ...] = ()
        elif isinstance(eviction, (list, tuple)):
            evictions = tuple(eviction)
        else:
            evictions = (eviction,)
        for each in evictions:
            if not isinstance(each, Eviction):
                raise TypeError(
                    "`eviction` must be a policy such as de.EvictionLRU(max_rows=10**6), a list "
                    f"of them, or None. {received(eviction=each)}"
                )
        for ranks in (True, False):
            if sum(bool(each.column) == ranks for each in evictions) > 1:
                kind = "bounds the table" if ranks else "limits the time to live"
                raise ValueError(
                    f"At most one `eviction` policy that {kind} can hold at a time. "
                    + received(eviction=eviction)
                )
        return cls(tuple(columns), admission, evictions)

    @property
    def rank_column(self) -> str:
        """The column by which rows go, or an empty string."""
        ranked = [each.column for each in self.evictions if each.column]
        return next(iter([*ranked, *self.columns]), "")

    @property
    def expires(self) -> bool:
        """Whether rows have a time to live."""
        return any(not each.column for each in self.evictions)

    @property
    def asks_each_step(self) -> bool:
        """Whether a step that is computed outside the tables must tell them of itself."""
        return self.admission is not None or self.expires

    def text(self, index: int, tables: int) -> str:
        """Returns what the engine is told for table `index` of `tables`.

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
