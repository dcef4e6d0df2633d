"""The graph of one signature of a SavedModel of `tfra`, rewritten to the ops of this library."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received

PREFIX = "TFRA>"
TABLE = "TFRA>CuckooHashTableOfTensors"
_FIND_WITH_EXISTS = "TFRA>CuckooHashTableFindWithExists"
#: The replacements of the ops of `tfra` that read.
_READERS = {
    "TFRA>CuckooHashTableFind": "DeTableFindWithDefaults",
    _FIND_WITH_EXISTS: "DeTableFindWithDefaults",
    "TFRA>CuckooHashTableSize": "DeTableSize",
    "TFRA>DynamicPartition": "DynamicPartition",
    "TFRA>DynamicStitch": "DynamicStitch",
    "TFRA>DynamicStitchFast": "DynamicStitch",
}
_ATTRIBUTES = {"Tin": "Tkeys", "Tout": "Tvalues"}
#: Attributes that refer to nodes and gradients outside of the rewritten graph.
_DROPPED = ("_class", "_gradient_op_type", "_output_shapes")
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: The signature's name.
        inputs: For each input, its tensor's name and spec.
        outputs: For each output, its tensor's name.
    """

    name: str
    inputs: dict[str, tuple[str, tf.TensorSpec]]
    outputs: dict[str, str]

    @classmethod
    def of(cls, name: str, message: Any) -> Signature:
        """Reads a SignatureDef message."""
        for key, info in [*message.inputs.items(), *message.outputs.items()]:
            if info.WhichOneof("encoding") != "name":
                raise ValueError(
                    f"Inputs and outputs of signature {name!r} must be dense tensors. "
                    f"{received(name=key, encoding=info.WhichOneof('encoding'))}"
                )
        inputs = {
            key: (
                info.name,
                tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), key),
            )
            for key, info in message.inputs.items()
        }
        return cls(name, inputs, {key: info.name for key, info in message.outputs.items()})


def check(nodes: Iterable[Any]) -> None:
    """Checks that a model's graph has no ops of `tfra` for which there is no replacement.

    Raises:
        ValueError: The graph has tables on a GPU or in Redis, or rows in files.
    """
    ops = {node.op for node in nodes if node.op.startswith(PREFIX)}
    if not ops:
        raise ValueError(
            "`path` must be a SavedModel that tfra exported. Received: a graph without its ops."
        )
    if "TFRA>CuckooHashTableLoadFromFileSystem" in ops:
        raise ValueError(
            "The rows must lie in the SavedModel's variables. Received: rows in files of tfra's "
            "FileSystemSaver. Import them with `de-core import-tfra`, and export again."
        )
    unknown = sorted(
        op for op in ops if not op.startswith("TFRA>CuckooHashTable") and op not in _READERS
    )
    if unknown:
        raise ValueError(
            "The graph must hold tables in main memory (CuckooHashTable) and ops that this library "
            f"knows. Received: {', '.join(unknown)}. Export the model again without them."
        )


def all_nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a GraphDef and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def rewritten(graph: Any, signature: Signature) -> Any:
    """Returns the part of a GraphDef that a signature runs, in the ops of this library.

    The part does not contain the signature's inputs: its importer maps their tensors.

    Raises:
        ValueError: The signature writes tables or variables.
    """
    inputs = {tensor.partition(":")[0] for tensor, _ in signature.inputs.values()}
    part = tf.compat.v1.GraphDef(versions=graph.versions)
    part.node.extend(_needed_nodes(graph.node, signature.outputs.values(), inputs))
    part.library.function.extend(_used_functions(graph, part.node))
    suffix = f"_converted_{next(_numbers)}"
    renamed = {each.signature.name: each.signature.name + suffix for each in part.library.function}
    for function in part.library.function:
        _forward_assigned(function.node_def, signature.name)
        _rename_outputs(function)
        function.signature.name = renamed[function.signature.name]
    _forward_assigned(part.node, signature.name)
    needed = list(_needed_nodes(part.node, signature.outputs.values(), inputs))
    del part.node[:]
    part.node.extend(needed)
    for node in all_nodes(part):
        _rewrite(node, signature.name)
        for called in _functions_of(node):
            called.name = renamed[called.name]
        node.op = renamed.get(node.op, node.op)
    return part


def without(part: Any, names: Collection[str]) -> Any:
    """Returns a GraphDef without some nodes. Other nodes may still have their tensors as inputs."""
    kept = tf.compat.v1.GraphDef(versions=part.versions, library=part.library)
    kept.node.extend(node for node in part.node if node.name not in names)
    for node in kept.node:
        _set_inputs(node, [each for each in node.input if each[0] != "^" or each[1:] not in names])
    return kept


def _needed_nodes(
    nodes: Iterable[Any], tensors: Iterable[str], mapped: Collection[str]
) -> Iterator[Any]:
    """Yields the nodes that compute `tensors`, without the nodes named `mapped`."""
    named = {node.name: node for node in nodes}
    todo, seen = [*tensors], {*mapped}
    while todo:
        name = todo.pop().removeprefix("^").partition(":")[0]
        if name not in seen:
            seen.add(name)
            yield named[name]
            todo.extend(named[name].input)


def _forward_assigned(nodes: Sequence[Any], signature: str) -> None:
    """Replaces reads of scratch variables by the values that the same run has assigned.

    The lookups of `tfra` assign ids and rows to variables and read them again. So two runs at once
    read each other's ids.
    """
    assigned = {node.name: node for node in nodes if node.op == "AssignVariableOp"}
    forwarded, read = set(), set()
    for node in nodes:
        if node.op != "ReadVariableOp":
            continue
        before = [assigned[each[1:]] for each in node.input[1:] if each[1:] in assigned]
        values = {each.input[1] for each in before if each.input[0] == node.input[0]}
        if len(values) != 1:
            read.add(node.input[0])
            continue
        forwarded.add(node.input[0])
        node.op = "Identity"
        node.attr["T"].CopyFrom(node.attr.pop("dtype"))
        _set_inputs(node, [values.pop(), *node.input[1:]])
    for name, node in assigned.items():
        if node.input[0] in read or node.input[0] not in forwarded:
            raise ValueError(
                f"Signature {signature!r} must not change variables. Received: node {name!r} of "
                "the op AssignVariableOp."
            )
        node.op = "NoOp"
        node.attr.clear()
        _set_inputs(node, [each for each in node.input if each[0] == "^"])


def _set_inputs(node: Any, inputs: list[str]) -> None:
    del node.input[:]
    node.input.extend(inputs)


def _used_functions(graph: Any, nodes: Iterable[Any]) -> list[Any]:
    functions = {each.signature.name: each for each in graph.library.function}
    used: dict[str, Any] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        for name in [node.op, *(each.name for each in _functions_of(node))]:
            if name in functions and name not in used:
                used[name] = functions[name]
                todo.extend(functions[name].node_def)
    return list(used.values())


def _functions_of(node: Any) -> list[Any]:
    """Returns the functions that a node's attributes name, as messages that can be changed."""
    found = []
    for value in node.attr.values():
        if value.HasField("func"):
            found.append(value.func)
        found.extend(value.list.func)
    return found


def _rename_outputs(function: Any) -> None:
    """Renames the outputs of a function's nodes whose new ops have other names for them.

    In a function, the name of an output is part of a tensor's name.
    """
    new = {_FIND_WITH_EXISTS: ("exists", "found"), "Identity": ("value", "output")}
    renamed = {node.name: new[node.op] for node in function.node_def if node.op in new}

    def name_of(tensor: str) -> str:
        node, _, rest = tensor.partition(":")
        output, _, index = rest.partition(":")
        old, name = renamed.get(node, ("", ""))
        return f"{node}:{name}:{index}" if output == old and index else tensor

    for node in function.node_def:
        _set_inputs(node, [name_of(each) for each in node.input])
    for name, tensor in function.ret.items():
        function.ret[name] = name_of(tensor)


def _rewrite(node: Any, signature: str) -> None:
    node.device = ""
    for name in _DROPPED:
        node.attr.pop(name, None)
    if not node.op.startswith(PREFIX) or node.op == TABLE:
        return
    if node.op not in _READERS:
        raise ValueError(
            f"Signature {signature!r} must only read tables that the graph creates outside of its "
            f"functions. Received: the op {node.op}."
        )
    node.op = _READERS[node.op]
    for old, new in _ATTRIBUTES.items():
        if old in node.attr:
            node.attr[new].CopyFrom(node.attr.pop(old))
