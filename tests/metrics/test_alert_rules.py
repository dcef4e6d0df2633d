"""Prometheus accepts the alert rules of the documentation, and each fires for the right table."""

import json
import re
from pathlib import Path

import pytest

from tests.support.applies import program
from tests.support.commands import run

PAGE = Path(__file__).parents[2] / "docs/howto/watch-a-trainer.md"
# Values by minute of the tables "good" and "bad": the first value, and the change per minute.
SERIES = {
    "evicted_total": {"good": (0, 1), "bad": (0, 60)},
    "lookups_total": {"good": (0, 100), "bad": (0, 100)},
    "hits_total": {"good": (0, 90), "bad": (0, 10)},
    "misses_total": {"good": (0, 10), "bad": (0, 90)},
    "updates_total": {"good": (0, 100), "bad": (5, 0)},
    "bytes": {"good": (10**9, 10**6), "bad": (10**9, 2 * 10**8)},
}
ALERTS = ["TableThrashes", "UnknownIds", "RowsExplode", "TableDoesNotTrain", "TableGrows"]
MINUTES = 120


@pytest.fixture
def rules(tmp_path):
    [text] = re.findall(r"```yaml\n(groups:.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    path = tmp_path / "rules.yaml"
    path.write_text(text, "utf-8")
    return path


def promtool(*arguments):
    return run(program("promtool", "prometheus"), *arguments, timeout=60)


def test_the_rules_are_valid(rules):
    checked = promtool("check", "rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout
    rules.write_text(rules.read_text("utf-8").replace("rate(", "rat(", 1), "utf-8")
    assert promtool("check", "rules", rules).returncode != 0


def test_each_rule_fires_for_the_bad_table_alone(rules, tmp_path):
    series = [
        {
            "series": f'de_table_{name}{{table="{table}"}}',
            "values": f"{first}+{change}x{MINUTES}",
        }
        for name, tables in SERIES.items()
        for table, (first, change) in tables.items()
    ]
    for table, last in (("good", 2), ("bad", 30)):  # the norm in the second hour; before it is 1
        series.append(
            {
                "series": f'de_table_row_norm{{table="{table}", quantile="0.99"}}',
                "values": f"1+0x{MINUTES // 2} {last}+0x{MINUTES // 2}",
            }
        )
    wanted = [
        {
            "eval_time": f"{MINUTES - 1}m",
            "alertname": alert,
            "exp_alerts": [{"exp_labels": labels_of(alert), "exp_annotations": {}}],
        }
        for alert in ALERTS
    ]
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": wanted}],
    }
    # The annotations are texts for people: without them, the labels of the alerts are compared.
    bare = re.sub(r"\n *annotations: .*", "", rules.read_text("utf-8"))
    rules.write_text(bare, "utf-8")
    file = tmp_path / "tests.json"  # JSON is YAML
    file.write_text(json.dumps(tests), "utf-8")
    found = promtool("test", "rules", file)
    assert found.returncode == 0, found.stdout + found.stderr


def labels_of(alert):
    labels = {"table": "bad"}
    return {**labels, "quantile": "0.99"} if alert == "RowsExplode" else labels
