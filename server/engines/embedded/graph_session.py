"""Runs a SavedModel's graph in a session, as model servers do.

Calling a loaded `tf.function` costs several times as much as a small model: Python matches the
arguments, and the graph's first nodes move to other threads. A session's callable takes numpy
arrays and runs the graph on the caller's thread. Large operations still use all cores. A run with a
deadline uses TensorFlow's threads: `DirectSession` can cancel only those.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...tensors import Array, SignatureSpec, Tensors

# Arguments: the inputs, and the seconds after which TensorFlow cancels the run. With None the graph
# runs on the caller's thread, where TensorFlow cannot cancel it.
Run = Callable[[Tensors, float | None], dict[str, Array]]

_INLINE = -1


class GraphSession:
    """One loaded graph. Its methods block. Several threads may call the result of `runner`."""

    def __init__(self, tensorflow: Any, path: Path, tag: str, threads: int) -> None:
        """Loads a SavedModel; raises TensorFlow's errors.

        Args:
            tensorflow: The module `tensorflow`.
            path: The SavedModel's folder.
            tag: The tag of the graph to load.
            threads: At most this many runs with a deadline run at once. All sessions of the process
                share these threads.
        """
        v1 = tensorflow.compat.v1
        config = v1.ConfigProto(inter_op_parallelism_threads=threads, allow_soft_placement=True)
        self._graph = tensorflow.Graph()
        self._session = v1.Session(graph=self._graph, config=config)
        # TensorFlow logs that training programs should not use this loader.
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
        """Returns a function that runs a signature: inputs by name to outputs by name."""
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
        """Releases the graph, its variables and tables. No run may be active."""
        self._session.close()

    def _callable(
        self, feeds: list[str], fetches: list[str], timeout_ms: int
    ) -> Callable[..., Sequence[Array]]:
        config = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        if timeout_ms == _INLINE:
            options = config.RunOptions(inter_op_thread_pool=_INLINE)
        else:
            options = config.RunOptions(timeout_in_ms=timeout_ms)
        # Keras runs its graphs with this private method too. The public `make_callable` is slow,
        # because it looks up feeds and fetches in every call. Only the public one accepts a tensor
        # that is both fed and fetched.
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
    """Rounds a timeout up to one of a few values, because each callable has a fixed timeout."""
    return max(128, 1 << math.ceil(math.log2(seconds * 1000)))
