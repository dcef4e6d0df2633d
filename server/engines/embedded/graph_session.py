"""A SavedModel's graph in a session, as model servers run it.

Calling a loaded `tf.function` costs several times what a small model does: Python matches the
arguments, and the graph's first nodes go to other threads. A session's callable takes numpy
arrays and runs the graph on the caller's thread. Large operations still share the cores. A run
that must end at a deadline runs on TensorFlow's threads: `DirectSession` cancels only those.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from server.tensors import Array, SignatureSpec, Tensors

# Inputs, and the seconds after which the run ends; None for a run on the caller's thread, which
# TensorFlow cannot end.
Run = Callable[[Tensors, float | None], dict[str, Array]]

_INLINE = -1


class GraphSession:
    """One loaded graph. Its methods block; what `runner` returns may run on several threads."""

    def __init__(self, tensorflow: Any, path: Path, tag: str, threads: int) -> None:
        """Loads a SavedModel; raises whatever TensorFlow does.

        Args:
            tensorflow: The module.
            path: The SavedModel's folder.
            tag: Which of its graphs.
            threads: Runs with a deadline that run at once, in all sessions of the process.
        """
        v1 = tensorflow.compat.v1
        config = v1.ConfigProto(inter_op_parallelism_threads=threads, allow_soft_placement=True)
        self._graph = tensorflow.Graph()
        self._session = v1.Session(graph=self._graph, config=config)
        # It logs that training programs should not use this loader.
        logger = tensorflow.get_logger()
        level = logger.level
        logger.setLevel("ERROR")
        try:
            v1.saved_model.load(self._session, [tag], str(path))
        except BaseException:
            self.close()
            raise
        finally:
            logger.setLevel(level)

    def runner(self, signature: SignatureSpec) -> Run:
        """Returns what runs a signature: inputs by name to outputs by name."""
        names, outputs = list(signature.inputs), signature.outputs
        feeds = [signature.inputs[name].tensor_name for name in names]
        fetches = list(dict.fromkeys(output.tensor_name for output in outputs.values()))
        places = {name: fetches.index(output.tensor_name) for name, output in outputs.items()}
        calls: dict[int, Callable[..., Sequence[Array]]] = {}

        def run(tensors: Tensors, seconds: float | None) -> dict[str, Array]:
            timeout = _INLINE if seconds is None else _rounded_ms(seconds)
            call = calls.get(timeout)
            if call is None:
                call = calls[timeout] = self._callable(feeds, fetches, timeout)
            results = call(*[tensors[name] for name in names])
            return {name: results[place] for name, place in places.items()}

        return run

    def close(self) -> None:
        """Releases the graph, its variables and tables. Nothing may run any more."""
        self._session.close()

    def _callable(
        self, feeds: list[str], fetches: list[str], timeout_ms: int
    ) -> Callable[..., Sequence[Array]]:
        config = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        if timeout_ms == _INLINE:
            options = config.RunOptions(inter_op_thread_pool=_INLINE)
        else:
            options = config.RunOptions(timeout_in_ms=timeout_ms)
        # Keras runs its graphs by this method too. The public one does the same, slowly: it
        # looks feeds and fetches up in every call. It also takes a feed that is fetched.
        make = getattr(self._session, "_make_callable_from_options", None)
        if make is None or set(feeds) & set(fetches):
            tensors = self._graph.get_tensor_by_name
            found: Callable[..., Sequence[Array]] = self._session.make_callable(
                [tensors(name) for name in fetches],
                [tensors(name) for name in feeds],
                accept_options=True,
            )
            return lambda *values: found(*values, options=options)
        made: Callable[..., Sequence[Array]] = make(
            config.CallableOptions(feed=feeds, fetch=fetches, run_options=options)
        )
        return made


def _rounded_ms(seconds: float) -> int:
    """Returns a timeout of at least so long: a callable has one, and few of them are made."""
    return max(128, 1 << math.ceil(math.log2(seconds * 1000)))
