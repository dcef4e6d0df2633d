"""Settings: where they come from, and what wrong ones are answered with."""

from __future__ import annotations

import pytest

from server.settings import SettingsError, load_settings


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("DE_GATEWAY_"):
            monkeypatch.delenv(name)


def test_a_flag_wins_over_the_environment_and_that_over_the_default(monkeypatch):
    monkeypatch.setenv("DE_GATEWAY_PORT", "9000")
    monkeypatch.setenv("DE_GATEWAY_THREADS", "3")
    settings = load_settings(model_dir="x", port="9001")
    assert (settings.port, settings.threads, settings.max_rank) == (9001, 3, 8)


def test_all_problems_are_told_at_once(monkeypatch):
    monkeypatch.setenv("DE_GATEWAY_PROT", "9000")
    with pytest.raises(SettingsError) as caught:
        load_settings(port="99999", threads="many")
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("DE_GATEWAY_PROT is not a setting")
    assert "--model-dir (or DE_GATEWAY_MODEL_DIR) must be given" in lines[1]
    assert lines[2].startswith("--port (or DE_GATEWAY_PORT): ")
    assert lines[2].endswith("Received: 99999")
    assert lines[3].startswith("--threads")
