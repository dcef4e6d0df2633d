"""One SavedModel in this process.

TensorFlow and the op library are imported when `load_tensorflow` is called, never before.
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import Code, ServingError
from ...protos.tensors import signatures_of
from ...tensors import (
    Array,
    SignatureSpec,
    Tensors,
    format_shape,
)
from .graph_session import GraphSession, Run
from .steady_graphs import steady_signatures

_LOG = logging.getLogger("server.models")
_SERVE_TAG = "serve"
# TensorFlow's error codes have gRPC's numbers, which is the order of declaration here.
_CODES = tuple(Code)
_UNKNOWN_OP = re.compile(r"Op type not registered '([^']+)'")
# Names of tfra's ops begin with the first one. A graph with the second one has no rows in its
# variables, and only tfra's own Saver reads them.
_TFRA = "TFRA>"
_TFRA_FILES = "TFRA>CuckooHashTableLoadFromFileSystem"
# Parts of TensorFlow's messages that name internals of the runtime and do not help a client.
_NODE = re.compile(r"\s*\[\[\{\{.*?\}\}\]\]|\s*\[Op:\w+\]\s*")
_PREAMBLE = re.compile(r"^.*<stack traces unavailable>\n", re.DOTALL)


class MissingDependencyError(Exception):
    """A required package is missing; the message says what to install."""


class LoadError(Exception):
    """A version cannot be loaded; the message is suitable for a status report."""


def load_tensorflow() -> Any:
    """Imports TensorFlow, and the op library if possible.

    If the library cannot be loaded, this only logs a warning: models without our ops can be served
    without it. A model that needs the library then fails to load, with the reason.

    Returns:
        The `tensorflow` module.

    Raises:
        MissingDependencyError: TensorFlow is missing.
    """
    # TensorFlow's start-up messages would hide the gateway's own log.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        tensorflow = importlib.import_module("tensorflow")
    except ImportError as error:
        raise MissingDependencyError(
            "The embedded engine needs TensorFlow: pip install tensorflow. "
            f"Received: {_one_line(error)}"
        ) from None
    problem = op_library_problem()
    if problem:
        _LOG.warning("models with embedding tables cannot be served: %s", problem)
    return tensorflow


@functools.cache
def op_library_problem(of_tfra: bool = False) -> str:
    """Loads the op library, which registers its ops; returns the remedy if that fails.

    The package de_core is for training: importing it needs Keras. So only its check and its library
    are loaded.

    Args:
        of_tfra: Also load the library of tfra's ops, which models exported by tfra need.
    """
    package = importlib.util.find_spec("de_core")
    if package is None or package.origin is None:
        return "the op library is not installed; install it with: pip install de-core"
    file = Path(package.origin).parent / "base" / "environment.py"
    try:
        checks = importlib.util.spec_from_file_location("de_core_environment", file)
        assert checks is not None
        assert checks.loader is not None
        environment = importlib.util.module_from_spec(checks)
        checks.loader.exec_module(environment)
        environment.check()
        load = importlib.import_module("tensorflow").load_op_library
        load(environment.library_path())
        if of_tfra:
            load(environment.tfra_library_path())
    except Exception as error:  # Plain models do not need the library, whatever is wrong with it.
        return f"the op library de_core does not load: {_one_line(error)}"
    return ""


def component_versions() -> dict[str, str]:
    """Returns the installed versions of TensorFlow and the op library."""
    versions = {}
    for name in ("tensorflow", "tensorflow-cpu", "de-core"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


class SavedModel:
    """A loaded SavedModel. Its methods block, and may be called from several threads at once."""

    def __init__(self, path: Path, threads: int = 4) -> None:
        """Loads the SavedModel in `path`. At most `threads` runs with a deadline may be active.

        Raises:
            LoadError: It cannot be loaded; the message says why.
        """
        tensorflow = importlib.import_module("tensorflow")
        op_library_problem()
        self._tf = tensorflow
        try:
            meta_graph = _read_meta_graph(path)
            of_tfra = _has_ops_of_tfra(meta_graph)
            if of_tfra and (problem := op_library_problem(of_tfra=True)):
                raise ValueError(problem)
            # tfra's lookups write ids and rows to variables of the session and read them again, so
            # that runs at once would read each other's.
            self._alone = threading.Lock() if of_tfra else contextlib.nullcontext()
            self.described = signatures_of(meta_graph.signature_def)
            self.signatures = {
                signature.name: signature for signature in self.described if _runs(signature)
            }
            self.steady = steady_signatures(meta_graph.graph_def, self.signatures.values())
            self._graph = GraphSession(tensorflow, path, _SERVE_TAG, threads)
            self._runners: Mapping[str, Run] = {
                name: self._graph.runner(signature) for name, signature in self.signatures.items()
            }
        except Exception as error:  # TensorFlow raises many types here
            raise LoadError(_load_message(path, error)) from error

    def run(
        self, signature: str, inputs: Tensors, seconds: float | None = None
    ) -> dict[str, Array]:
        """Runs a signature; see `LoadedModel.run`."""
        spec = self.signatures[signature]
        try:
            with self._alone:
                outputs = self._runners[signature](inputs, seconds)
            return {name: _array(value) for name, value in outputs.items()}
        except self._tf.errors.OpError as error:
            raise _run_error(error, spec, inputs) from error

    def close(self) -> None:
        """Drops the model and its resources. No run may be active."""
        self._runners = {}
        self._graph.close()
        # The graph contains reference cycles: only a garbage collection frees it. Do not wait for
        # Python's next one.
        gc.collect()
        _return_memory()


def _return_memory() -> None:
    """Returns freed memory to the system; glibc would keep much of it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _runs(signature: SignatureSpec) -> bool:
    """Returns whether clients can run a signature: its inputs and outputs are dense tensors."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return bool(signature.outputs) and all(":" in spec.tensor_name for spec in specs)


def _array(value: Any) -> Array:
    if isinstance(value, bytes):
        # Do not use numpy's own strings: they lose zero bytes at their end.
        scalar = np.empty((), object)
        scalar[()] = value
        return scalar
    return np.asarray(value)


def _read_meta_graph(path: Path) -> Any:
    """Reads the MetaGraphDef message to serve."""
    saved_model_pb2 = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    for graph in message.meta_graphs:
        if _SERVE_TAG in graph.meta_info_def.tags:
            return graph
    raise ValueError(f"it has no graph tagged {_SERVE_TAG!r}")


def _has_ops_of_tfra(meta_graph: Any) -> bool:
    """Returns whether a graph has ops of tfra; raises ValueError if it cannot be served."""
    graph = meta_graph.graph_def
    ops = {node.op for node in graph.node}
    ops.update(node.op for function in graph.library.function for node in function.node_def)
    if _TFRA_FILES in ops:
        raise ValueError(
            "its rows lie in files of tfra's FileSystemSaver, which no model server reads. Import "
            "them with `de-core import-tfra`"
        )
    return any(op.startswith(_TFRA) for op in ops)


def _run_error(error: Any, spec: SignatureSpec, inputs: Tensors) -> ServingError:
    code = _CODES[error.error_code] if 0 < error.error_code < len(_CODES) else Code.UNKNOWN
    message = _NODE.sub("", _PREAMBLE.sub("", str(error.message))).strip()
    if code is Code.INVALID_ARGUMENT:
        # The kernels' messages seldom name the input. So we add the given and the declared shape.
        for name, value in inputs.items():
            if not spec.inputs[name].accepts(value.shape):
                message = (
                    f"Input {name} must have shape {format_shape(spec.inputs[name].shape)}. "
                    f"Received: shape {format_shape(value.shape)}. {message}"
                )
    return ServingError(code, message)


def _load_message(path: Path, error: Exception) -> str:
    text = _one_line(error).replace(str(path), ".")
    if match := _UNKNOWN_OP.search(text):
        text = f"the model uses the op {match[1]}, which no loaded library provides."
        if problem := op_library_problem():
            text += f" Perhaps because {problem}"
    return f"SavedModel cannot be loaded: {text}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
