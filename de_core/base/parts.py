"""Delegates an object's methods to its parts."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class method_of(Generic[_Arguments, _Result]):  # noqa: N801  lower case, like `property`
    """A class attribute that delegates a method to one of the object's parts.

    Example:
    >>> class Engine:
    ...     def start(self, gear: int) -> str:
    ...         return f"started in gear {gear}"
    >>> class Car:
    ...     start = method_of("engine", Engine.start)
    ...     def __init__(self):
    ...         self.engine = Engine()
    >>> Car().start(1)
    'started in gear 1'
    """

    def __init__(self, part: str, method: Callable[Concatenate[Any, _Arguments], _Result]) -> None:
        self._part = part
        self._method = method

    @overload
    def __get__(
        self, whole: None, owner: type
    ) -> Callable[Concatenate[Any, _Arguments], _Result]: ...

    @overload
    def __get__(self, whole: object, owner: type) -> Callable[_Arguments, _Result]: ...

    def __get__(self, whole: object | None, owner: type) -> Any:
        if whole is None:
            return self._method  # `help` shows its docstring
        return types.MethodType(self._method, getattr(whole, self._part))
