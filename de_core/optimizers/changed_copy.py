"""Copies of optimizers that do some things in another way."""

from __future__ import annotations

from typing import Any


class ChangedCopy:
    """Mixed in before the class of an optimizer: has the settings of the original at any time.

    What it does not have itself it looks up in the original; what it sets it keeps for itself.

    Attributes:
        original: The optimizer that it is a copy of.
    """

    original: Any

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the original's."""
        try:
            return vars(self.__dict__["original"])[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute, without what the class of an optimizer does to track it."""
        object.__setattr__(self, name, value)


def changed_copy(original: Any, changes: type[ChangedCopy], **attributes: Any) -> Any:
    """Returns a copy of an optimizer.

    Args:
        original: The optimizer.
        changes: What it does in another way.
        **attributes: Of the copy's own.
    """
    kind = type(original)
    copy: Any = object.__new__(type(f"RowsOf{kind.__name__}", (changes, kind), {}))
    vars(copy).update(original=original, **attributes)
    return copy
