"""One SavedModel in this process. It runs its graph in a session, as model servers do.

Calling a loaded `tf.function` costs several times as much as a small model: Python matches the
arguments, and the graph's first nodes move to other threads. A session's callable takes numpy
arrays and runs the graph on the caller's thread. Large operations still use all cores. Only graphs
that might never end, such as loops, run on TensorFlow's threads, where `DirectSession` can cancel
them.

TensorFlow and the op library are imported when `load_tensorflow` is called, never before.
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.util
import logging
import math
import os
import re
import runpy
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import Code, ServingError, StartError
from ...protos.tensors import signatures_of
from ...tensors import Array, SignatureSpec, Tensors, format_shape

_LOG = logging.getLogger("server.models")
_SERVE_TAG = "serve"
# The timeout of a run on the caller's thread, which TensorFlow cannot cancel. It is the number of
# TensorFlow's thread pool for such runs.
_INLINE = -1
# A graph with one of these ops might never end: loops, and ops that wait or run Python.
_ENDLESS = re.compile(
    "While|^For$|Enter$|PyFunc|Queue|Barrier|Dataset|Iterator|Stage|Unstage|Recv|Mutex|TakeGradient"
)
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


class LoadError(Exception):
    """A version cannot be loaded; the message is suitable for a status report."""


def load_tensorflow() -> Any:
    """Imports TensorFlow, and the op library if possible.

    If the library cannot be loaded, this only logs a warning: models without our ops can be served
    without it. A model that needs the library then fails to load, with the reason.

    Returns:
        The `tensorflow` module.

    Raises:
        StartError: TensorFlow is missing.
    """
    # TensorFlow's start-up messages would hide the gateway's own log.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        tensorflow = importlib.import_module("tensorflow")
    except ImportError as error:
        raise StartError(
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
        environment = runpy.run_path(str(file))
        environment["check"]()
        load = importlib.import_module("tensorflow").load_op_library
        load(environment["library_path"]())
        if of_tfra:
            load(environment["tfra_library_path"]())
    except Exception as error:  # Plain models do not need the library, whatever is wrong with it.
        return f"the op library de_core does not load: {_one_line(error)}"
    return ""


class SavedModel:
    """A loaded SavedModel. Its methods block, and may be called from several threads at once.

    Attributes:
        described: All signatures that the model declares.
        signatures: The signatures that can be run, by name.
    """

    def __init__(self, path: Path, threads: int = 4) -> None:
        """Loads the SavedModel in `path`.

        TensorFlow has `threads` threads for graphs that might never end. All models of the process
        share them.

        Raises:
            LoadError: It cannot be loaded; the message says why.
        """
        self._tf = importlib.import_module("tensorflow")
        op_library_problem()
        try:
            meta_graph = _read_meta_graph(path)
            graph = meta_graph.graph_def
            functions = [each.node_def for each in graph.library.function]
            ops = {node.op for nodes in (graph.node, *functions) for node in nodes}
            if _TFRA_FILES in ops:
                raise ValueError(
                    "its rows lie in files of tfra's FileSystemSaver, which no model server reads. "
                    "Import them with `de-core import-tfra`"
                )
            of_tfra = any(op.startswith(_TFRA) for op in ops)
            self._is_endless = any(map(_ENDLESS.search, ops))
            if of_tfra and (problem := op_library_problem(of_tfra=True)):
                raise ValueError(problem)
            # tfra's lookups write ids and rows to variables of the session and read them again, so
            # that runs at once would read each other's.
            self._alone = threading.Lock() if of_tfra else contextlib.nullcontext()
            self.described = signatures_of(meta_graph.signature_def)
            # Clients can run signatures whose inputs and outputs are dense tensors.
            self.signatures = {
                each.name: each
                for each in self.described
                if each.outputs
                and all(
                    ":" in spec.tensor_name
                    for spec in (*each.inputs.values(), *each.outputs.values())
                )
            }
            self._session = _load_session(self._tf, path, threads)
        except Exception as error:  # TensorFlow raises many types here
            raise LoadError(_load_message(path, error)) from error
        # By signature and timeout: the session's callable, and the place of each output.
        self._calls: dict[tuple[str, int], tuple[Callable[..., Sequence[Any]], list[int]]] = {}

    def run(
        self, signature: str, inputs: Tensors, seconds: float | None = None
    ) -> dict[str, Array]:
        """Runs a signature; see `Servable.run`.

        A run that might never end is cancelled after one to two times `seconds`.
        """
        spec = self.signatures[signature]
        timeout = _INLINE
        if self._is_endless and seconds is not None:
            # Each callable has a fixed timeout, so round up to one of a few values.
            timeout = 1 << math.ceil(math.log2(max(128, seconds * 1000)))
        try:
            with self._alone:
                known = self._calls.get((signature, timeout)) or self._prepare(spec, timeout)
                call, places = known
                results = call(*[inputs[name] for name in spec.inputs])
        except self._tf.errors.OpError as error:
            raise _run_error(error, spec, inputs) from error
        outputs = {}
        for name, place in zip(spec.outputs, places, strict=True):
            value = results[place]
            # numpy's own strings lose zero bytes at their end.
            outputs[name] = np.asarray(value, object if isinstance(value, bytes) else None)
        return outputs

    def close(self) -> None:
        """Drops the model, its variables and tables. No run may be active."""
        self._calls = {}
        self._session.close()
        # The graph contains reference cycles: only a garbage collection frees it. Do not wait for
        # Python's next one.
        gc.collect()
        # Return the freed memory to the system; glibc would keep much of it.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def _prepare(
        self, spec: SignatureSpec, timeout: int
    ) -> tuple[Callable[..., Sequence[Any]], list[int]]:
        feeds = [tensor.tensor_name for tensor in spec.inputs.values()]
        names = [tensor.tensor_name for tensor in spec.outputs.values()]
        fetches = list(dict.fromkeys(names))
        config = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        if timeout == _INLINE:
            options = config.RunOptions(inter_op_thread_pool=_INLINE)
        else:
            options = config.RunOptions(timeout_in_ms=timeout)
        # Keras runs its graphs with this private method too. The public `make_callable` is slow,
        # because it looks up feeds and fetches in every call. Only the public one accepts a tensor
        # that is both fed and fetched.
        make = getattr(self._session, "_make_callable_from_options", None)
        if make is None or set(feeds) & set(fetches):
            tensors = self._session.graph.get_tensor_by_name
            public = self._session.make_callable(
                [tensors(name) for name in fetches],
                [tensors(name) for name in feeds],
                accept_options=True,
            )
            call = functools.partial(public, options=options)
        else:
            call = make(config.CallableOptions(feed=feeds, fetch=fetches, run_options=options))
        prepared = call, [fetches.index(name) for name in names]
        self._calls[spec.name, timeout] = prepared
        return prepared


def _load_session(tensorflow: Any, path: Path, threads: int) -> Any:
    v1 = tensorflow.compat.v1
    config = v1.ConfigProto(inter_op_parallelism_threads=threads, allow_soft_placement=True)
    session = v1.Session(graph=tensorflow.Graph(), config=config)
    # TensorFlow logs that training programs should not use this loader.
    logger = tensorflow.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        v1.saved_model.load(session, [_SERVE_TAG], str(path))
    except BaseException:
        session.close()
        raise
    finally:
        logger.setLevel(level)
    return session


def _read_meta_graph(path: Path) -> Any:
    """Reads the MetaGraphDef message to serve."""
    saved_model_pb2 = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    for graph in message.meta_graphs:
        if _SERVE_TAG in graph.meta_info_def.tags:
            return graph
    raise ValueError(f"it has no graph tagged {_SERVE_TAG!r}")


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
