"""A gateway with numpy functions: the real command and flags, without TensorFlow."""

import asyncio
import functools
import gc
import sys

import numpy as np
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.cli import _parser
from server.engines import chosen
from server.process.gateway import Gateway
from server.settings import load_settings
from tests.server.support.numpy_engine import (
    FUNCTIONS,
    NumpyEngine,
    X,
    Y,
    lookup_signature,
    signature,
)


def make_engine() -> NumpyEngine:
    """Returns an engine with signatures for tests of load.

    `tasks` returns the event loop's number of tasks, `connections` the number of connections in
    memory, `blocks` the number of memory blocks that Python's allocator has given out. `rest`
    sleeps for the input's seconds. The table `wide` returns rows of 64 numbers for any 100,000 ids.
    """

    def counter(count):
        def run(x):
            gc.collect()
            return {"y": np.full(x.shape, count(), np.float32)}

        return run

    def connections():
        return sum(isinstance(each, HttpToolsProtocol) for each in gc.get_objects())

    async def rest(x):
        await asyncio.sleep(float(x[0]))
        return {"y": x}

    added = {
        name: (signature(name, X, Y), run)
        for name, run in (
            ("tasks", counter(lambda: len(asyncio.all_tasks()))),
            ("connections", counter(connections)),
            ("blocks", counter(sys.getallocatedblocks)),
            ("rest", rest),
        )
    }
    wide = np.random.default_rng(0).random((100_000, 64), np.float32)
    found = np.ones(100_000, bool)
    added["de_lookup/wide"] = (
        lookup_signature("wide", "int64", 64),
        lambda ids: {"embeddings": wide[: len(ids)], "found": found[: len(ids)]},
    )
    old, classify = FUNCTIONS["old"]
    added["old"] = (old, functools.partial(asyncio.to_thread, classify))
    return NumpyEngine({**FUNCTIONS, **added})


def main() -> None:
    flags = vars(_parser().parse_args(sys.argv[1:]))
    # With these settings the gateway does not load TensorFlow.
    chosen.TfServingEngine = lambda *_: make_engine()
    stub = {"engine": "tfserving", "models": "m", "upstreams": "127.0.0.1:1"}
    sys.exit(Gateway(load_settings(**stub, **flags)).run_until_stopped())


if __name__ == "__main__":
    main()
