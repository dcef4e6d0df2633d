"""An extension of Griffe: shows the examples of docstrings as code."""

from __future__ import annotations

import textwrap
from typing import Any

import griffe

_HEADING = "\nExample:\n"


class Examples(griffe.Extension):
    """Indents the text below "Example:", because Griffe expects Google's section "Examples:"."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            before, heading, example = obj.docstring.value.partition(_HEADING)
            if heading:
                obj.docstring.value = f"{before}\nExamples:\n{textwrap.indent(example, '    ')}"
