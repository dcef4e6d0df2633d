"""Coordinates the workers of a synchronous training: each writes its rows of one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from de_core.tables.router import Router

_T = TypeVar("_T")


def from_first_worker(router: Router, value: _T) -> _T:
    """Returns the first worker's value, which must fit into JSON."""
    return json.loads(router.texts(json.dumps(value))[0]) if router.is_spread else value


def from_all_workers(router: Router, work: Callable[[], _T]) -> list[_T]:
    """Runs a function on each worker, and returns the results in the order of the workers.

    Args:
        router: The tables' router.
        work: Returns strings and numbers, or lists and dicts of them.

    Raises:
        tf.errors.AbortedError: Another worker failed. A worker raises its own error unchanged.
    """
    if not router.is_spread:
        return [work()]
    failure: Exception | None = None
    try:
        mine: dict[str, _T | str] = {"result": work()}
    except Exception as error:
        failure, mine = error, {"error": f"{type(error).__name__}: {error}"}
    everyones = [json.loads(text) for text in router.texts(json.dumps(mine))]
    if failure is not None:
        raise failure
    for number, each in enumerate(everyones):
        if "error" in each:
            raise tf.errors.AbortedError(
                None,
                None,
                "All workers must write their parts of a checkpoint. Nothing was replaced. "
                f"Received: worker {number} failed with {each['error']}",
            )
    return [each["result"] for each in everyones]
