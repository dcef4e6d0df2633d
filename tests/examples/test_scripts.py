import json
import re
from pathlib import Path

import pytest

from tests.support.applies import applies_if

ROOT = Path(__file__).resolve().parents[2]
RETAIL = ROOT.parent / "shared/data/online_retail_sample.csv"


def succeeded(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def measured(output, name):
    """Returns the (AUC, recall) in the printed table for `name`."""
    match = re.search(rf"^{name} +(\d\.\d+) +(\d\.\d+)$", output, re.MULTILINE)
    assert match, output
    return float(match[1]), float(match[2])


def learned(output):
    match = re.search(r"Rows learned: ([\d,]+) of table user and ([\d,]+) of table item", output)
    assert match, output
    return tuple(int(number.replace(",", "")) for number in match.groups())


@pytest.mark.parametrize(
    "script", ["train_ranking.py", "demo.py", "client.py", "online_update.py", "rank_items.py"]
)
def test_help_explains_the_script(run, script):
    output = succeeded(run(script, "--help"))
    assert "usage" in output
    assert "-h, --help" in output


@pytest.mark.slow
@applies_if(RETAIL.exists(), "the retail sample beside the checkout")
def test_training_on_the_retail_sample_reports_both_and_what_limits_them(run, tmp_path):
    output = succeeded(run("train_ranking.py", "--data", RETAIL, "--out", tmp_path / "out"))
    assert "2,291 lines left out" in output
    measured(output, "model")
    measured(output, "popularity")
    assert "Training never saw the users of 80%" in output
    users, items = learned(output)
    assert 0 < users < 323  # some of the log's users occur only in the test part
    assert 0 < items < 1704


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "missing.csv"], "missing.csv"),
        (["--data", "wrong.csv"], "columns buyer, sku, day"),
        (["--data", "short.csv"], "at least 20 interactions"),
        (["--data", "bytes.csv"], "decode"),
        (["--data", "short.csv", "--encoding", "klingon"], "klingon"),
        (["--out", "short.csv/out"], "short.csv/out"),
    ],
)
def test_bad_input_gets_one_sentence_and_status_2(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("wrong.csv").write_text("buyer,sku,day\n" + "a,b,1\n" * 30)
    Path("bytes.csv").write_bytes(bytes(range(256)) * 4)
    Path("short.csv").write_text("user,item,time\na,b,1\n")
    result = run("train_ranking.py", *arguments)
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if line.startswith("train_ranking.py: ")]
    assert len(said) == 1
    assert message in said[0]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", ["--epochs", "--dim", "--batch-size", "--seed", "--events"])
@pytest.mark.parametrize("value", ["-1", "1.5", "many"])
def test_a_number_out_of_range_is_refused(run, option, value):
    result = run("train_ranking.py", option, value)
    assert result.returncode == 2
    assert "must be a whole number from" in result.stderr


@pytest.mark.slow
def test_the_demo_trains_serves_asks_and_stops(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = succeeded(run("demo.py", "--out", "my ranking", "--events", "3000", "--epochs", "1"))
    predictions = [
        json.loads(line.partition("answer ")[2])["predictions"]
        for line in output.splitlines()
        if line.strip().startswith('answer {"predictions"')
    ]
    assert [len(scores) for scores in predictions] == [2, 1]
    assert all(0 < score < 1 for scores in predictions for score in scores)
    assert re.findall(r"found: (\w+)", output) == ["true", "false"]
    measured(output, "model")
    learned(output)
    assert "SavedModel: my ranking/1" in output
    ending = output[output.index("The gateway has stopped.") :]
    assert "-m server --model-dir" in ending
    assert re.search("curl -d .*/my%20ranking:predict$", ending.splitlines()[-1])


@pytest.mark.slow
def test_online_updates_are_served_within_seconds(run, tmp_path):
    options = ["--seconds", "8", "--every", "2", "--events", "6000"]
    output = succeeded(run("online_update.py", *options, "--out", tmp_path / "ranking"))
    kinds = re.findall(r"then version \d+: (\w+),", output)
    assert kinds[0] == "full"
    assert "delta" in kinds
    served = re.findall(r"from base (\w+) and (\d+) deltas, ([\d.]+) s old", output)
    assert len({(base, deltas) for base, deltas, _ in served}) >= 2
    asked, seen = re.search(r"asked (\d+) times and saw (\d+) versions", output).groups()
    assert (int(asked), int(seen)) == (len(served), len({each[:2] for each in served}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://127.0.0.1:abc", ""])
def test_the_client_says_how_to_start_a_gateway_that_is_not_there(run, url):
    result = run("client.py", "--url", url, "--model", "a b", "--user", "u", "--item", "i")
    assert result.returncode == 1
    assert "/v1/models/a%20b:predict" in result.stderr
    assert "python -m server" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_on_the_synthetic_log_the_model_clearly_beats_popularity(run, tmp_path):
    output = succeeded(run("train_ranking.py", "--out", tmp_path / "out"))
    auc, recall = measured(output, "model")
    base_auc, base_recall = measured(output, "popularity")
    assert auc > base_auc + 0.05
    assert recall > 1.5 * base_recall
    assert f"SavedModel: {tmp_path / 'out/1'}" in output
    assert (tmp_path / "out/1/saved_model.pb").is_file()


@pytest.mark.slow
def test_a_user_is_sent_once_for_many_items_and_the_scores_stay(run, tmp_path):
    output = succeeded(run("rank_items.py", "--items", "100", "--out", tmp_path / "two towers"))
    assert float(re.search(r"largest difference of a score: (\S+)", output)[1]) <= 1e-6
    bytes_part = float(re.search(r"of it +(\S+) +\S+", output)[1])
    assert bytes_part < 0.2
