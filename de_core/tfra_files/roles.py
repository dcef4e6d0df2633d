"""Finds which tables in files of `tfra` belong to others: optimizer slots and counts of policies.

`tfra` keeps a slot in a table of its own, named `<table>/<operation>/<slot>` or `<table>/<slot>`. A
restrict policy keeps its counts in `<table>/frequency` and its times in `<table>/timestamp`. A
checkpoint of objects tells the owner by its structure. A Saver and key-value files turn "/" into
"_". There a slot must have the shape of its owner, and come with all slots of some optimizer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from de_core.base.checks import received
from de_core.tfra_files.saved_table import SavedTable, escaped, flat

#: Metadata columns here, by the names of the tables in which policies keep them there.
COLUMNS = {"frequency": "uses", "timestamp": "time"}
#: The slots that an optimizer of TensorFlow 1 or tf_keras keeps together.
_SETS = [
    frozenset(names.split())
    for names in (
        *("accum accum_update", "accum linear", "accum_grad accum_var", "accumulator", "m", "m u"),
        *("accumulated_grad accumulated_delta_var", "accumulator linear", "m v", "m v vhat"),
        *("gradient_accumulator gradient_squared_accumulator", "momentum", "rms", "rms momentum"),
        *("rms mg", "rms mg momentum", "velocity", "velocity momentum"),
        *("velocity average_gradient", "velocity average_gradient momentum"),
    )
]
_SLOTS = sorted(frozenset().union(*_SETS), key=len, reverse=True)
#: Parts of names that only tfra gives: optimizers of TensorFlow 1, and shadows of layers.
_OPERATION = re.compile(
    r"Adadelta|Adagrad|AdagradDA|Adam|Ftrl|GradientDescent|Momentum|ProximalAdagrad|RMSProp|.*-shadow"
)
_STATUS = re.compile(r"(?:.+_)?status(?:_\d+)?_")
#: Names of this library's slots, by the names in the files.
_OWN = {
    "accum": ("accumulator", "accum_grad"),
    "accum_update": ("accum_var",),
    "accumulated_delta_var": ("accum_var",),
    "accumulated_grad": ("accum_grad",),
    "average_gradient": ("mg",),
    "m": ("momentum",),
    "u": ("v",),
    "velocity": ("rms",),
}


class Role(NamedTuple):
    """The role of a table for its owner.

    Attributes:
        owner: The owner's name.
        part: The slot's name; or the metadata column, "uses" or "time".
        optimizer: The path of the slot's optimizer in a checkpoint of objects, or "".
        sure: False if it may also be a table by itself.
    """

    owner: str
    part: str
    optimizer: str = ""
    sure: bool = True


def of_objects(tables: dict[str, SavedTable], optimizers: Collection[str]) -> dict[str, Role]:
    """Returns the roles of a checkpoint's tables, by name."""
    roles = {}
    for name, table in tables.items():
        parent, _, own = table.path.rpartition("/")
        part = table.name.rpartition("/")[2]
        owners = [each for each in tables if table.name.startswith(f"{tables[each].name}/")]
        if own == escaped(table.name) and part in COLUMNS:
            owners = [each for each in tables if tables[each].path == parent]
            part = COLUMNS[part]
        elif own == escaped(table.name) and parent in optimizers:
            pass
        elif re.fullmatch(r"(.+/)?optimizer_vars/\d+", table.path):  # tfra 0.6.0
            parent = next(iter(optimizers), "")
        else:
            continue
        if owners:
            roles[name] = Role(max(owners, key=lambda each: len(tables[each].name)), part, parent)
    return roles


def of_flat_names(tables: dict[str, SavedTable], known: Collection[str]) -> dict[str, Role]:
    """Returns the roles of tables whose names lack "/", by name.

    `known` tables have no owner.
    """
    names = sorted((name for name in tables if flat(name) not in set(map(flat, known))), key=len)
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        for owner in tables:
            rest = name.removeprefix(f"{owner}_")
            slot = next((each for each in _SLOTS if f"_{rest}".endswith(f"_{each}")), None)
            if rest != name and slot is not None and _may_be(tables[name], slot):
                operation = rest.removesuffix(slot).removesuffix("_")
                groups.setdefault((owner, operation), {})[slot] = name
    readings: dict[str, list[Role]] = {}
    for (owner, operation), group in groups.items():
        for slot, sure in _fitting(tables, owner, operation, group).items():
            readings.setdefault(group[slot], []).append(Role(owner, slot, sure=sure))
    roles: dict[str, Role] = {}
    for name in names:
        found = [each for each in readings.get(name, ()) if each.owner not in roles]
        found += _policy_of(tables, name)
        if found:
            roles[name] = max(found, key=lambda each: (len(each.owner), each.sure))
    return roles


def _may_be(table: SavedTable, part: str) -> bool:
    """Returns whether the scope in a Saver's files allows that this is the end of a name."""
    return not table.scope or re.fullmatch(rf"{part}(_\d+)?", table.scope) is not None


def _fitting(
    tables: dict[str, SavedTable], owner: str, operation: str, group: dict[str, str]
) -> dict[str, bool]:
    """Returns the slots that fit the owner, and whether they cannot be anything else."""
    own = tables[owner]
    same = {slot: name for slot, name in group.items() if own.is_like(tables[name])}
    chosen = max((each for each in _SETS if each <= set(same)), key=len, default=frozenset())
    counts = {tables[same[slot]].sizes()[0] for slot in chosen}
    known = len(chosen) > 1 or _OPERATION.fullmatch(operation) is not None
    sure = known and len(counts) == 1 and max(counts) <= own.sizes()[0]
    return dict.fromkeys(chosen, sure)


def _policy_of(tables: dict[str, SavedTable], name: str) -> list[Role]:
    table = tables[name]
    for part, column in COLUMNS.items():
        rest = name.removesuffix(f"_{part}")
        if rest == name or not _may_be(table, part) or not table.may_count():
            continue
        owners = [
            (each, before)
            for each in tables
            if rest.endswith(each) and len(table.shards) == len(tables[each].shards)
            for before in [rest.removesuffix(each)]
            if not before or _STATUS.fullmatch(before)
        ]
        if owners:
            owner, before = max(owners, key=lambda each: len(each[0]))
            return [Role(owner, column, sure=bool(before))]
    return []


def collected(
    tables: dict[str, SavedTable],
    optimizers: Collection[str],
    known: Collection[str],
    chosen: re.Pattern[str] | None,
) -> dict[str, SavedTable]:
    """Returns the tables that belong to no other, each with what belongs to it, by name.

    `optimizers` are the paths of the optimizers in a checkpoint of objects. `known` are names of
    tables that have no owner. `chosen` matches the names of tables to import. It decides where the
    files do not tell whether a table has an owner. It is None if nothing was chosen.
    """
    is_tree = any(each.path for each in tables.values())
    roles = of_objects(tables, optimizers) if is_tree else of_flat_names(tables, known)
    doubts = {}
    for name, role in list(roles.items()):
        if not role.sure and (chosen is None or chosen.fullmatch(name)):
            del roles[name]
            if chosen is None:
                doubts[name] = f"{role.part!r} of table {role.owner!r}"
    found = {
        name: table._replace(doubts=doubts.get(name, ""))
        for name, table in tables.items()
        if name not in roles
    }
    for name, role in roles.items():
        owner = found[role.owner]
        parts = owner.columns if role.part in COLUMNS.values() else owner.slots
        parts[role.part] = tables[name]
        if role.optimizer and parts is owner.slots:
            found[role.owner] = owner._replace(optimizer=role.optimizer)
    return found


def check_doubts(groups: Mapping[str, SavedTable], chosen: list[str]) -> None:
    """Raises ValueError if a chosen table may be a part of another."""
    doubts = {name: groups[name].doubts for name in chosen if groups[name].doubts}
    if doubts:
        sure = "|".join(re.escape(name) for name in chosen if name not in doubts)
        every = "|".join(map(re.escape, chosen))
        raise ValueError(
            "The files must tell which tables are parts of others. Received: "
            + "; ".join(f"{name!r} is a table, or {each}" for name, each in doubts.items())
            + f". Pass tables={every!r} to read tables, or tables={sure!r} to read parts."
        )


def own_names(table: str, saved: Iterable[str], own: Collection[str]) -> dict[str, str]:
    """Returns the names that an optimizer gives to slots, by the saved names.

    Raises:
        ValueError: The optimizer keeps other slots than the files have.
    """
    names = {
        each: next((name for name in (each, *_OWN.get(each, ())) if name in own), each)
        for each in saved
    }
    if set(names) == {"m"} and not own:
        return {}  # A new tf_keras SGD has this slot also without momentum, and never reads it.
    if set(names.values()) != set(own):
        raise ValueError(
            f"The optimizer must keep the slots that the files have for table {table!r}. "
            f"{received(saved=sorted(names), optimizer=sorted(own))} Pass the same kind of "
            "optimizer with the same settings, or slots=False."
        )
    return names
