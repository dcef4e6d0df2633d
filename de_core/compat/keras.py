"""The Keras layers under the name they had, `de.keras.layers`."""

from __future__ import annotations

from de_core.compat import keras_layers as layers
from de_core.compat.removed import removed_names

__all__ = ["layers"]

__getattr__ = removed_names(
    __name__,
    callbacks="keras.callbacks.ModelCheckpoint includes the tables",
    models="model.save, model.export and de.export include the tables",
)
