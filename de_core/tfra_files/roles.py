"""Tells tables from the tables of their optimizer slots.

`tfra` keeps a slot in a table of its own, named `<table>/<operation>/<slot>` or `<table>/<slot>`.
In a checkpoint of objects, such a table is a child of its optimizer, under its own name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from de_core.tfra_files.contents import SavedTable, flat
from de_core.tfra_files.tensors import escaped

#: The names of slots of the optimizers of tf_keras and TensorFlow 1.
NAMES = (
    "accum_grad",
    "accum_var",
    "accumulated_delta_var",
    "accumulated_grad",
    "accumulator",
    "average_gradient",
    "gradient_accumulator",
    "gradient_squared_accumulator",
    "linear",
    "m",
    "mg",
    "momentum",
    "rms",
    "u",
    "v",
    "velocity",
    "vhat",
)
#: Names of this library's slots, by the names of new tf_keras optimizers.
_OWN = {
    "accumulated_delta_var": "accum_var",
    "accumulated_grad": "accum_grad",
    "average_gradient": "mg",
    "m": "momentum",
    "u": "v",
    "velocity": "rms",
}


class TableWithSlots(NamedTuple):
    """A table and its optimizer slots.

    Attributes:
        table: The table.
        slots: The slots by name. Each is a table with the keys of this table.
        optimizer: The path of the optimizer in the checkpoint, or "" if it is unknown.
    """

    table: SavedTable
    slots: dict[str, SavedTable]
    optimizer: str


def grouped(tables: dict[str, SavedTable], given: Collection[str]) -> dict[str, TableWithSlots]:
    """Returns the tables, each with its slots, by name.

    Args:
        tables: All tables that were found.
        given: Names of tables that are not slots, because Variables for them were passed.
    """
    known = {flat(name) for name in given}
    owners = {
        name: None if flat(name) in known else _owner(table, tables)
        for name, table in tables.items()
    }
    groups = {
        name: TableWithSlots(tables[name], {}, "") for name, owner in owners.items() if not owner
    }
    for name, owner in owners.items():
        if owner in groups:
            slot = _slot_of(name, owner) or name.rpartition("/")[2]
            group = groups[owner]
            group.slots[slot] = tables[name]
            groups[owner] = group._replace(optimizer=tables[name].path.rpartition("/")[0])
    return groups


def _owner(slot: SavedTable, tables: dict[str, SavedTable]) -> str | None:
    """Returns the name of the table whose slot a table is, or None."""
    separator = "/" if slot.path else "_"
    if slot.path and not slot.path.endswith(f"/{escaped(slot.name)}"):
        return None
    owners = [
        name
        for name in tables
        if slot.name.startswith(name + separator) and (slot.path or _slot_of(slot.name, name))
    ]
    return min(owners, key=len, default=None)


def _slot_of(name: str, owner: str) -> str | None:
    rest = name[len(owner) + 1 :]
    fitting = [each for each in NAMES if rest == each or rest.endswith((f"_{each}", f"/{each}"))]
    return max(fitting, key=len, default=None)


def own_names(table: str, saved: Iterable[str], own: Collection[str]) -> dict[str, str]:
    """Returns the names that an optimizer gives to slots, by the saved names.

    Args:
        table: The table's name.
        saved: The names in the files.
        own: The names of the optimizer's slots.

    Raises:
        ValueError: The optimizer keeps other slots than the files have.
    """
    names = {each: each if each in own else _OWN.get(each, each) for each in saved}
    if names == {"m": "momentum"} and not own:
        return {}  # A new tf_keras SGD has this slot also without momentum, and never reads it.
    if set(names.values()) != set(own):
        raise ValueError(
            f"The optimizer must keep the slots that the files have for table {table!r}. Received: "
            f"files with the slots {sorted(names)}, and an optimizer with {sorted(own)}. Pass the "
            "same kind of optimizer with the same settings, or slots=False."
        )
    return names
