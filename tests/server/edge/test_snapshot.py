"""`/metrics` reports models and tables even while the engine does not answer."""

import asyncio

import numpy as np

from tests.server.support.asgi import make_app, send
from tests.server.support.numpy_engine import FUNCTIONS, NumpyEngine, signature, tensor
from tests.server.support.virtual_time import run_in_virtual_time

SIZE = 'gateway_table_rows{model="m",table="user"}'
HEALTH = 'gateway_table_health{health="intact",model="m",table="user"} 1.0'


STATS = np.array(b'[{"table": "user", "rows": 7, "health": "intact"}]', object)


def test_metrics_are_reported_while_statistics_are_slow():
    async def work():
        asked, go_on = [], asyncio.Event()

        async def tell():
            asked.append("de_stats")
            await go_on.wait()
            return {"stats": STATS}

        stats = signature("de_stats", [], [tensor("stats", "string")])
        app = make_app(NumpyEngine({**FUNCTIONS, "de_stats": (stats, tell)}))
        async with app.router.lifespan_context(app):
            loop = asyncio.get_running_loop()
            begun = loop.time()
            replies = await asyncio.gather(*(send(app, "GET", "/metrics") for _ in range(3)))
            waited = loop.time() - begun
            go_on.set()
            replies.append(await send(app, "GET", "/metrics"))
        texts = [each.body.decode() for each in replies]
        assert [HEALTH in text for text in texts] == [SIZE in text for text in texts]
        return asked, waited, [SIZE in text for text in texts]

    asked, waited, told = run_in_virtual_time(work())
    assert (asked, told) == (["de_stats"], [False, False, False, True])
    assert 1 <= waited < 10
