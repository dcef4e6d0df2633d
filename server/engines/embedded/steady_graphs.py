"""Finds signatures whose time depends only on the sizes of their inputs.

We call such a signature steady. It has no string inputs, because the time of string ops depends on
lengths. It runs no loop, whose time depends on values, and no Python op, queue or similar op, which
may take any time.
"""

import re
from collections.abc import Iterable
from typing import Any

from ...tensors import Kind, SignatureSpec

_UNSTEADY = re.compile(
    r"While|^For$|^Enter$|PyFunc|Queue|Barrier|Dataset|Iterator|MapDefun|File|Stage|Recv|Mutex"
)


def steady_signatures(graph: Any, signatures: Iterable[SignatureSpec]) -> frozenset[str]:
    """Returns the names of the steady signatures.

    Args:
        graph: The GraphDef message of the signatures.
        signatures: Signatures with tensors.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {each.signature.name: each.node_def for each in graph.library.function}
    return frozenset(
        signature.name
        for signature in signatures
        if all(spec.dtype.kind is not Kind.STRING for spec in signature.inputs.values())
        and not any(_UNSTEADY.search(op) for op in _ops(signature, nodes, functions))
    )


def _ops(signature: SignatureSpec, nodes: dict[str, Any], functions: dict[str, Any]) -> set[str]:
    """Returns the ops that a signature runs, including those of the functions that it calls."""
    ops: set[str] = set()
    seen: set[str] = set()
    called: set[str] = set()
    wanted = [spec.tensor_name for spec in signature.outputs.values()]
    while wanted:
        name = wanted.pop().lstrip("^").split(":", 1)[0]
        if name in seen:
            continue
        seen.add(name)
        node = nodes[name]
        ops.add(node.op)
        wanted += node.input
        calls = list(_calls(node))
        while calls:
            function = calls.pop()
            if function in called or function not in functions:
                continue
            called.add(function)
            for inner in functions[function]:
                ops.add(inner.op)
                calls += _calls(inner)
    return ops


def _calls(node: Any) -> Iterable[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
