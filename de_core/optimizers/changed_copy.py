"""Copies of optimizers in which some methods are replaced."""

from __future__ import annotations

from typing import Any

from de_core.base.types import Optimizer


class ChangedCopy:
    """A mixin for a copy of an optimizer.

    In the list of base classes, name it before the optimizer's class.

    The copy reads missing attributes from the original, so it always has the original's current
    settings. Attributes that the copy sets stay in the copy.

    Attributes:
        original: The copied optimizer.
    """

    original: Any

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the original optimizer."""
        try:
            return vars(self.__dict__["original"])[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute without the tracking that Keras's optimizer classes do."""
        object.__setattr__(self, name, value)


def changed_copy(original: Optimizer, changes: type[ChangedCopy], **attributes: Any) -> Optimizer:
    """Returns a copy of an optimizer with some methods replaced.

    Args:
        original: The optimizer to copy.
        changes: The class with the replaced methods.
        **attributes: Attributes to set on the copy.
    """
    kind = type(original)
    copy: Any = object.__new__(type(f"RowsOf{kind.__name__}", (changes, kind), {}))
    vars(copy).update(original=original, **attributes)
    return copy
