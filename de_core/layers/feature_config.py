"""The declaration of a feature: the table that holds its rows, and how they are pooled."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, Literal

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.base.types import Id
from de_core.layers import masking
from de_core.layers.table_config import TableConfig
from de_core.lookup.pooling import Combiner, checked_combiner

if TYPE_CHECKING:
    from typing_extensions import Self


@keras.saving.register_keras_serializable(package="de_core")
class FeatureConfig:
    """Declares a feature for `de.layers.EmbeddingCollection`.

    Args:
        name: Name of the feature, unique within a collection.
        table: The table that holds the rows. Several features may share a table.
        combiner: How to pool the rows of an example: "sum", which is sum(weight * row); "mean", the
            sum divided by sum(weight); or "sqrtn", the sum divided by sqrt(sum(weight^2)). None for
            a sequence: a row for each id. "auto" for the table's combiner.
        max_length: Look up only the first `max_length` ids of an example; None for all. A sequence
            is filled with zeros up to this length.
        weights: Whether every call must pass a weight for each id. False: weights are optional.
        mask_key: The id that means padding, such as 0 or ""; None for no padding. Padding is left
            out of pooled rows, and becomes zeros in a sequence.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: `combiner` is unknown, `max_length` is not positive, or a sequence has weights.

    Example:
    >>> import de_core as de
    >>> items = de.TableConfig("items", 16)
    >>> viewed = de.FeatureConfig("viewed", items, combiner="sum", max_length=50)
    >>> bought = de.FeatureConfig("bought", items)
    >>> viewed.combiner, bought.combiner
    ('sum', 'mean')
    """

    def __init__(
        self,
        name: str,
        table: TableConfig,
        combiner: Combiner | Literal["auto"] | None = "auto",
        max_length: int | None = None,
        weights: bool = False,
        *,
        mask_key: Id | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
        if not isinstance(table, TableConfig):
            raise TypeError(f"`table` must be a de.TableConfig. {received(table=table)}")
        self.name = name
        self.table = table
        if combiner == "auto":
            combiner = table.combiner
        self.combiner = None if combiner is None else checked_combiner(combiner)
        self.max_length = _checked_length(max_length)
        self.weights = bool(weights)
        if self.weights and self.combiner is None:
            raise ValueError(
                "A sequence must have no weights, because its rows are not pooled. Set `combiner`. "
                + received(combiner=combiner, weights=weights)
            )
        self.mask_key = masking.checked_key(mask_key, table.key_dtype)

    @property
    def is_unbounded(self) -> bool:
        """True for a sequence of any length."""
        return self.combiner is None and self.max_length is None

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`."""
        return {
            "name": self.name,
            "table": keras.saving.serialize_keras_object(self.table),
            "combiner": self.combiner,
            "max_length": self.max_length,
            "weights": self.weights,
            "mask_key": self.mask_key,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a `FeatureConfig` from the result of `get_config`."""
        table = config["table"]
        if not isinstance(table, TableConfig):
            table = keras.saving.deserialize_keras_object(table)
        return cls(**{**config, "table": table})

    def __repr__(self) -> str:
        return f"<de.FeatureConfig {self.name!r} of {self.table!r}>"


def _checked_length(max_length: int | None) -> int | None:
    if max_length is None:
        return None
    if isinstance(max_length, bool) or not isinstance(max_length, numbers.Integral):
        raise TypeError(
            f"`max_length` must be None or a whole number. {received(max_length=max_length)}"
        )
    if max_length < 1:
        raise ValueError(f"`max_length` must be positive. {received(max_length=max_length)}")
    return int(max_length)
