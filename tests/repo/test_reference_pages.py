"""The pages of settings and metrics name everything that the code has."""

import re
from pathlib import Path

from prometheus_client import ProcessCollector

from de_core.parameter_server.health import Health
from server.observability.metrics import Metrics
from server.settings import Settings, flag_of


def setting_rows() -> list[str]:
    """Returns the rows of the page's table of the gateway's settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "") else f"`{field.default}`"
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{flag_of(name)}` | {default} | {meaning} |")
    return rows


def gateway_metric_rows() -> list[str]:
    """Returns the rows of the page's table of the gateway's metrics."""
    rows = []
    for collector in Metrics()._registry._collector_to_names:
        if isinstance(collector, ProcessCollector):
            continue
        for metric in collector.describe():
            labels = getattr(collector, "_labels", None) or getattr(collector, "_labelnames", ())
            name = metric.name + "_total" * (metric.type == "counter")
            shown = ", ".join(f"`{each}`" for each in labels)
            rows.append(f"| `{name}` | {metric.type} | {shown} | {metric.documentation} |")
    return sorted(rows)


def test_the_page_of_settings_has_each_setting_of_the_gateway(root: Path):
    page = (root / "docs/reference/settings.md").read_text("utf-8").splitlines()
    assert [row for row in page if row.startswith("| `--")] == setting_rows()


def test_the_page_of_settings_has_each_variable_of_the_library(root: Path):
    page = (root / "docs/reference/settings.md").read_text("utf-8")
    read = re.compile(r"""(?:getenv\(|environ(?:\.get\(|\[))"([A-Z_]+)""")
    variables = {
        name
        for folder in ("de_core", "de_core_cli")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".cc", ".h") and "testing" not in path.parts
        for name in read.findall(path.read_text("utf-8"))
    }
    assert "DE_VERIFY" in variables
    assert [name for name in {*variables, "DE_SIMD"} if name not in page] == ["KERAS_BACKEND"]


def test_the_page_of_metrics_has_each_metric_of_the_gateway(root: Path):
    page = (root / "docs/reference/metrics.md").read_text("utf-8").splitlines()
    assert [row for row in page if row.startswith("| `gateway_")] == gateway_metric_rows()


def test_the_page_of_metrics_has_each_metric_of_a_server(root: Path):
    page = (root / "docs/reference/metrics.md").read_text("utf-8")
    health = Health("ps", 0)
    health.ready()
    kinds = dict(re.findall(r"# TYPE (\w+) (\w+)", health.metrics()))
    assert dict(re.findall(r"^\| `(de_\w+)` \| (\w+) \|", page, re.MULTILINE)) == kinds
