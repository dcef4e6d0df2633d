"""Tests the page at /ui in a real browser, with a real gateway."""

import json
import re

import numpy as np
import pytest

from server.observability.live import LiveView
from server.observability.worker_metrics import merge
from tests.server.support.browser import open_browser
from tests.server.support.eventually import wait_until

MODEL = "/v1/models/ranker"


@pytest.fixture(scope="module")
def browser(gateway):
    with open_browser() as browser:
        browser.open(f"http://127.0.0.1:{gateway.port}/ui")
        browser.wait_for("document.getElementById('state').innerText === 'live'")
        yield browser


def test_models_versions_and_tables_are_shown(browser):
    assert re.search(r"ranker\s+1\s+AVAILABLE\s+\d+ (s|min|h)", browser.text("models"))
    assert re.search(r"ranker\s+user\s+4\s+4\s+int64", browser.text("tables"))
    assert re.search(r"ranker\s+item\s+2\s+4\s+string", browser.text("tables"))


def test_a_request_is_sent_and_its_answer_shown(browser):
    body = json.dumps({"instances": [{"user": 7, "item": "lamp"}]})
    browser.fill(send_verb="predict")
    browser.fill(send_body=body)
    browser.submit("send-form")
    answer = browser.wait_for("document.getElementById('send-answer').innerText")
    assert re.match(r"200, [\d.]+ ms, version 1\n", answer)
    assert '"score":7.5' in answer
    browser.fill(send_body="{")
    browser.submit("send-form")
    browser.wait_for("document.getElementById('send-answer').innerText.includes('400, ')")
    assert "JSON Parse error" in browser.text("send-answer")


def test_an_id_is_looked_up_and_compared_with_others(browser):
    others = f"{2**53 + 1} 0 {-(2**63)} 12345 7"
    browser.fill(lookup_table="ranker / user", lookup_id="7", lookup_others=others)
    browser.submit("lookup-form")
    browser.wait_for("document.getElementById('neighbours').rows.length")
    assert browser.text("lookup-answer").startswith("found\n0.5000 1.500 2.500 3.500")
    neighbours = [line.split() for line in browser.text("neighbours").splitlines() if line]
    names = [name for name, _ in neighbours]
    # The neighbours are the other ids, but no unknown ones.
    assert sorted(names) == sorted([str(2**53 + 1), "0", str(-(2**63))])
    values = [float(value) for _, value in neighbours]
    assert values == sorted(values, reverse=True)
    one, two = 0.5 + np.arange(4), 1.5 + np.arange(4)
    cosine = one @ two / np.sqrt((one @ one) * (two @ two))
    assert values[0] == pytest.approx(cosine, abs=1e-3)
    browser.fill(lookup_id="5")
    browser.submit("lookup-form")
    browser.wait_for("document.getElementById('lookup-answer').innerText.startsWith('not found')")


def test_rows_of_every_type_are_shown(browser):
    answer = '{"embeddings":[[1.5,NaN,-Infinity,true,"a"]],"found":[true]}'
    fake = f"/:lookup$/.test(path) ? new Response({json.dumps(answer)}) : real(path, body)"
    browser.run(f"real = ask, ask = async (path, body) => {fake}, 0")
    browser.fill(lookup_table="ranker / user", lookup_id="7", lookup_others="")
    browser.submit("lookup-form")
    shown = "found\\n1.500 NaN -Infinity true a"
    browser.wait_for(f"document.getElementById('lookup-answer').innerText === '{shown}'")
    browser.run("ask = real, 0")


def test_charts_follow_the_traffic(browser, gateway):
    drawn = [
        f"/\\d+\\.\\d/.test(document.querySelector('#{chart} polyline').getAttribute('points'))"
        for chart in ("latency", "unknown", "requests")
    ]
    # The page shows the fraction of the last second: half of the ids, if all were looked up here.
    drawn.append("document.getElementById('unknown-now').innerText.includes('50.0 %')")
    lookup = {"table": "user", "ids": [7, 5]}

    def ask_and_look():
        assert gateway.ask("POST", f"{MODEL}:lookup", lookup).status == 200
        return browser.run(" && ".join(drawn))

    wait_until(ask_and_look)
    for chart, unit in (("latency", "ms"), ("unknown", "%"), ("requests", "/s")):
        axes = browser.run(f"document.getElementById('{chart}').parentElement.innerText")
        assert re.search(rf"top: [\d.]+ {unit}\n", axes), axes
        assert re.search(rf"5 min ago\s+0 {unit} at the bottom\s+now", axes), axes


def test_the_page_is_readable_on_a_phone(browser):
    browser.resize(390, 844)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("getComputedStyle(document.body).fontSize") == "16px"
    browser.resize(1100, 1500)


def test_the_page_loads_no_external_files_and_logs_no_errors(browser, gateway):
    urls = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert urls
    own = (f"http://127.0.0.1:{gateway.port}/", "data:")
    assert [url for url in urls if not url.startswith(own)] == []
    assert [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"] == []
    violations = [e for e in browser.events if "Content Security Policy" in json.dumps(e)]
    assert violations == []


def test_the_page_comes_with_a_policy_that_loads_nothing(gateway):
    reply = gateway.ask("GET", "/ui")
    assert reply.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert gateway.ask("GET", "/ui/../settings.py").status == 404
    assert gateway.ask("POST", "/ui", b"").status == 405


def test_live_view_counts_by_the_second():
    now = 100.0
    view = LiveView(clock=lambda: now)
    for i in range(1000):
        view.observe(200, 0.001 * (i % 100), {"t": (2, 1)})
    view.observe(500, 0.5, {})
    now = 101.0
    view.observe(200, 0.002, {})
    first, second = view.points()
    counted = [first[name] for name in ("requests", "failures", "ids", "unknown")]
    assert counted == [1001, 1, 2000, 1000]
    assert first["p50_ms"] == pytest.approx(49, abs=3)
    assert second["p99_ms"] == pytest.approx(2)


def test_metrics_of_workers_are_merged_by_family():
    one = b'# HELP a A\n# TYPE a counter\na_total{x="1"} 1.0\n# HELP b B\n# TYPE b gauge\nb 2.0\n'
    merged = merge([(0, one), (3, one)]).decode().splitlines()
    assert merged == [
        "# HELP a A", "# TYPE a counter",
        'a_total{worker="0",x="1"} 1.0', 'a_total{worker="3",x="1"} 1.0',
        "# HELP b B", "# TYPE b gauge", 'b{worker="0"} 2.0', 'b{worker="3"} 2.0',
    ]  # fmt: skip
