"""A SavedModel's graph in a session, as model servers run it.

Calling a loaded `tf.function` costs several times what a small model does: Python matches the
arguments, and the graph's first nodes go to other threads. A session's callable takes numpy
arrays and runs the graph on the caller's thread. Large operations still share the cores.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from server.tensors import Array, SignatureSpec, Tensors

Run = Callable[[Tensors], dict[str, Array]]


class GraphSession:
    """One loaded graph. Its methods block; what `runner` returns may run on several threads."""

    def __init__(self, tensorflow: Any, path: Path, tag: str) -> None:
        """Loads a SavedModel; raises whatever TensorFlow does.

        Args:
            tensorflow: The module.
            path: The SavedModel's folder.
            tag: Which of its graphs.
        """
        v1 = tensorflow.compat.v1
        # Below 0: nodes run on the caller's thread.
        config = v1.ConfigProto(inter_op_parallelism_threads=-1, allow_soft_placement=True)
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
        call = self._callable(feeds, fetches)

        def run(tensors: Tensors) -> dict[str, Array]:
            results = call(*[tensors[name] for name in names])
            return {name: results[place] for name, place in places.items()}

        return run

    def close(self) -> None:
        """Releases the graph, its variables and tables. Nothing may run any more."""
        self._session.close()

    def _callable(self, feeds: list[str], fetches: list[str]) -> Callable[..., Sequence[Array]]:
        # Keras runs its graphs by this method too. The public one does the same, slowly: it
        # looks feeds and fetches up in every call. It also takes a feed that is fetched.
        make = getattr(self._session, "_make_callable_from_options", None)
        if make is None or set(feeds) & set(fetches):
            tensors = self._graph.get_tensor_by_name
            found: Callable[..., Sequence[Array]] = self._session.make_callable(
                [tensors(name) for name in fetches], [tensors(name) for name in feeds]
            )
            return found
        config = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        made: Callable[..., Sequence[Array]] = make(
            config.CallableOptions(feed=feeds, fetch=fetches)
        )
        return made
