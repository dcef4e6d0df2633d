"""The command of a parameter server finds its task in its options or in TF_CONFIG."""

import json

import pytest
import tensorflow as tf

from de_core.parameter_server import __main__ as command

JOBS = {"ps": ["a:1", "b:1"], "worker": ["c:1"]}
PS_0 = ("--job", "ps", "--task", "0")


@pytest.fixture
def started(monkeypatch):
    """Runs the command without a server. Returns its exit code and the task that it started."""
    tasks = []

    class StartedError(Exception):
        pass

    def start(cluster, job_name, task_index, **_):
        tasks.append((job_name, task_index, cluster.as_dict()))
        raise StartedError

    monkeypatch.setattr(tf.distribute, "Server", start)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)

    def run(config, *options):
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        try:
            return command.main(list(options)), None
        except StartedError:
            return 0, tasks.pop()

    return run


def test_the_task_comes_from_tf_config_and_options_win(started):
    config = {"cluster": JOBS, "task": {"type": "ps", "index": 1}}
    assert started(config) == (0, ("ps", 1, JOBS))
    assert started(config, "--job", "worker", "--task", "0") == (0, ("worker", 0, JOBS))
    other = {"ps": ["x:1", "y:1"]}
    assert started(config, "--cluster", json.dumps(other)) == (0, ("ps", 1, other))
    text = {"cluster": JOBS, "task": {"type": "ps", "index": "0"}}  # some launchers quote it
    assert started(text) == (0, ("ps", 0, JOBS))


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (None, [], "Give both --job and --task, or neither"),
        ({"type": "ps"}, [], "KeyError: 'index'"),
        ({"type": "ps", "index": "x"}, [], "invalid literal"),
        ({"type": "ps", "index": 0}, ["--job", "ps"], "one of the two options is missing"),
        ({"type": "ps", "index": 0}, ["--task", "1"], "one of the two options is missing"),
        ({"type": "chief", "index": 0}, [], "Received: --job chief --task 0"),
        ({"type": "ps", "index": 2}, [], "Received: --job ps --task 2"),
        (None, ["--job", "ps", "--task", "2"], "Received: --job ps --task 2"),
        (None, [*PS_0, "--cluster", "ps:2222"], "must hold the addresses"),
        (None, [*PS_0, "--cluster", "{}"], "must hold the addresses"),
    ],
)
def test_a_missing_or_wrong_task_is_one_sentence(started, capsys, task, options, message):
    config = {"cluster": JOBS, **({} if task is None else {"task": task})}
    assert started(config, *options) == (2, None)
    assert message in capsys.readouterr().err
