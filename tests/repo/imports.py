"""Reads which modules a Python file imports, and when."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def imports(text: str, package: str = "") -> list[tuple[str, str]]:
    """Returns the imports of a file, each with "at once", "in a function" or "for types".

    `from a import b` is `a.b`. Relative imports start at `package`, the package of the file.
    """
    return list(_imports(ast.parse(text), package, "at once"))


def _imports(tree: ast.AST, package: str, when: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level and package:
                base = importlib.util.resolve_name(base, package)
            yield from ((f"{base}.{alias.name}", when) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _imports(node, package, "for types")
        elif isinstance(node, FUNCTIONS) and when == "at once":
            yield from _imports(node, package, "in a function")
        else:
            yield from _imports(node, package, when)


def imports_below(root: Path, *folders: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields each import of the folders' files: path, importing module, imported one, and when."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root)
            module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
            package = ".".join(file.parts[:-1])
            for imported, when in imports(path.read_text("utf-8"), package):
                yield file.as_posix(), module, imported, when
