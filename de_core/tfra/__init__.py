"""The names of `tensorflow_recommenders_addons`, so that its programs run as they are.

    from de_core import tfra

    de = tfra.dynamic_embedding

`import_checkpoint` reads the files that they wrote. `python -m de_core.tfra program.py` runs a
program that imports `tensorflow_recommenders_addons`.
The names have the arguments, the order and the defaults of version 0.8.1. A name without a
counterpart exists too; its first use raises an error that says what to do.
"""

from __future__ import annotations

from de_core.tfra import dynamic_embedding
from de_core.tfra.convert import convert_saved_model
from de_core.tfra.names import register_all
from de_core.tfra.ops import load_ops
from de_core.tfra_files import ImportedTable, import_checkpoint

#: The version of the reference API.
__version__ = "0.8.1"

__all__ = [
    "ImportedTable",
    "convert_saved_model",
    "dynamic_embedding",
    "import_checkpoint",
    "load_ops",
    "register_all",
]
