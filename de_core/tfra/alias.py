"""Makes `import tensorflow_recommenders_addons` find `de_core.tfra` in this process."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from de_core import tfra

NAME = "tensorflow_recommenders_addons"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `tfra` by their names in `tensorflow_recommenders_addons`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] != NAME:
            return None
        module: Any = tfra
        for part in fullname.split(".")[1:]:
            module = getattr(module, part, None)
        if not isinstance(module, ModuleType):
            raise ModuleNotFoundError(
                f"The name must be a public module of {NAME}. Received: {fullname!r}. Import the "
                f"names that you need from {NAME}.dynamic_embedding.",
                name=fullname,
            )
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = (module, module.__spec__)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return spec.loader_state[0]

    def exec_module(self, module: ModuleType) -> None:
        """Gives our module its own spec back: Python set the alias's."""
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__ = spec.loader_state[1]


def install() -> None:
    """Installs the alias for the rest of this process. It goes before an installed `tfra`."""
    if not any(isinstance(each, _Alias) for each in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
