"""Writes every public signature of `tensorflow_recommenders_addons` to a JSON file."""

import inspect
import json
import sys
import types
from pathlib import Path
from typing import Any

#: Modules whose names users write, below `tensorflow_recommenders_addons`.
MODULES = (
    "",
    "dynamic_embedding",
    "dynamic_embedding.data_flow",
    "dynamic_embedding.keras",
    "dynamic_embedding.keras.callbacks",
    "dynamic_embedding.keras.layers",
    "dynamic_embedding.keras.models",
    "dynamic_embedding.math",
    "dynamic_embedding.shadow_ops",
    "dynamic_embedding.train",
)


def text_of(default: Any) -> str:
    """Returns a default value as text without an address or a module."""
    if isinstance(default, type) or inspect.isroutine(default):
        return str(default.__name__)
    if type(default).__repr__ is object.__repr__:
        return f"{type(default).__name__}()"
    return repr(default)


def signature_of(function: Any) -> list[str]:
    """Returns each parameter as "name", "name=default", "*name" or "**name"."""
    found = []
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is each.VAR_POSITIONAL:
            found.append(f"*{name}")
        elif each.kind is each.VAR_KEYWORD:
            found.append(f"**{name}")
        else:
            text = "" if each.default is each.empty else f"={text_of(each.default)}"
            found.append(name + text)
    return found


def is_own(thing: Any) -> bool:
    """Returns True if the library itself defines a class or function."""
    module = getattr(thing, "__module__", None) or ""
    return module.startswith(("tensorflow_recommenders_addons", "de_core"))


def public(module: Any) -> dict[str, Any]:
    """Returns the public classes and functions of a module by name."""
    return {
        name: getattr(module, name)
        for name in sorted(dir(module))
        if not name.startswith("_") and not isinstance(getattr(module, name), types.ModuleType)
    }


def found_in(tfra: Any) -> dict[str, list[str]]:
    """Returns the parameters of each public class, method and function by its full name."""
    found: dict[str, list[str]] = {}
    for name in MODULES:
        module: Any = tfra
        for part in filter(None, name.split(".")):
            module = getattr(module, part)
        for own, thing in public(module).items():
            full = f"{name}.{own}".lstrip(".")
            if not callable(thing) or not is_own(thing):
                continue
            found[full] = signature_of(thing.__init__ if isinstance(thing, type) else thing)
            for method in sorted(dir(thing)) if isinstance(thing, type) else ():
                value = getattr(thing, method, None)
                if not method.startswith("_") and inspect.isroutine(value) and is_own(value):
                    found[f"{full}.{method}"] = signature_of(value)
    return found


if __name__ == "__main__":
    import tensorflow_recommenders_addons

    found = found_in(tensorflow_recommenders_addons)
    Path(sys.argv[1]).write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", "utf-8")
