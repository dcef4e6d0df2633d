"""The features that a collection declares: a nest of configs, and values of the same structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.layers.configs import FeatureConfig, TableConfig, converted


class DeclaredFeatures:
    """The features of a collection.

    A plain object, so that Keras does not track its parts. `configs` are those of the nest
    `features`, in the order of `tf.nest.flatten`.
    """

    def __init__(self, features: Any, configs: list[FeatureConfig]) -> None:
        self.features = features
        self.configs = configs
        #: The tables, each once.
        self.tables = list({id(config.table): config.table for config in configs}.values())

    @classmethod
    def of(cls, features: Any) -> DeclaredFeatures:
        """Converts and checks a nest of configs, of this library or of others."""
        _require_string_keys(features)
        tables: dict[int, TableConfig] = {}
        configs = [converted(config, path, tables) for path, config in _leaves(features, features)]
        if not configs:
            raise ValueError(f"A collection must have a feature. {received(features=features)}")
        declared = cls(tf.nest.pack_sequence_as(features, configs), configs)
        _require_distinct("features", [config.name for config in configs])
        _require_distinct("tables", [table.name for table in declared.tables])
        return declared

    def flat(self, values: Any) -> list[Any]:
        """Returns the value of each feature."""
        return [value for _, value in _leaves(self.features, values)]

    def flat_weights(self, weights: Any) -> list[Any]:
        """Returns the weights of each feature; None for a feature without weights.

        Any part of `weights` may be None, or be left out of a dict.

        Raises:
            ValueError: `weights` have another structure, or a feature with `weights=True` has
                none.
        """
        found = [value for _, value in _leaves(self.features, weights, may_lack=True)]
        for config, value in zip(self.configs, found, strict=True):
            if value is None and config.weights:
                raise ValueError(
                    f"The feature {config.name!r} must have weights: pass them in `weights`. "
                    f"Received: none for {config.name!r}."
                )
        return found

    def packed(self, values: list[Any]) -> Any:
        """Returns the value of each feature in the structure of the features."""
        return tf.nest.pack_sequence_as(self.features, values)


def _leaves(
    features: Any, values: Any, may_lack: bool = False, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the path and the value of each feature, in the order of `tf.nest.flatten`.

    With `may_lack`, parts of `values` may be None or be left out of a dict.
    """
    if not tf.nest.is_nested(features) and not isinstance(values, Mapping):
        yield path, values
        return
    parts, given = _parts(features), _parts(values)
    if values is None and may_lack:
        given = {}
    elif isinstance(values, Mapping) != isinstance(features, Mapping):
        given = None
    if given is None or not set(given) <= set(parts) or (set(given) < set(parts) and not may_lack):
        place = f" at {'/'.join(map(str, path))!r}" if path else ""
        raise ValueError(
            "The inputs of a collection must have the structure of its features"
            f"{place}: {_shown(features)}. Received: {_shown(values)}."
        )
    for name in sorted(parts):
        yield from _leaves(parts[name], given.get(name), may_lack, (*path, name))


def _parts(structure: Any) -> Any:
    """Returns the parts of a nest by their keys or numbers; None if it has none."""
    if isinstance(structure, (list, tuple)):
        return dict(enumerate(structure))
    return dict(structure) if isinstance(structure, Mapping) else None


def _require_string_keys(features: Any) -> None:
    if isinstance(features, Mapping) and not all(isinstance(name, str) for name in features):
        raise TypeError(
            "The keys of a collection's features must be strings: a saved model has no others. "
            f"Received: {list(features)}."
        )
    for part in (_parts(features) or {}).values():
        _require_string_keys(part)


def _require_distinct(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"The {what} of a collection must have distinct names: rename one, or share one "
            f"config object. Received: {twice} more than once."
        )


def _shown(structure: Any) -> str:
    """Returns the first level of a nest for an error message."""
    if isinstance(structure, Mapping):
        return f"a dict with the keys {sorted(structure, key=str)}"
    if isinstance(structure, (list, tuple)):
        return f"a {type(structure).__name__} of {len(structure)}"
    return f"a {type(structure).__name__}"
