"""The documentation's site builds without a warning and without a network."""

import html
import inspect
import re
import sys
from pathlib import Path

import pytest

import de_core as de
from tests.support.commands import run


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. The environment has no TensorFlow to import: the sources must suffice."""
    folder = tmp_path_factory.mktemp("site")
    poison = tmp_path_factory.mktemp("poison")
    (poison / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = run(*command, cwd=root, NO_MKDOCS_2_WARNING="1", PYTHONPATH=str(poison))
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_the_site_builds_without_a_warning_and_has_all_pages(root: Path, site: Path):
    pages = {path.relative_to(root / "docs") for path in (root / "docs").rglob("*.md")}
    assert {path for path in pages if not (site / path).with_suffix(".html").is_file()} == set()
    assert "unknown id reads as its initial row" in (site / "reference/gateway.html").read_text()


def test_a_browser_loads_nothing_from_elsewhere(site: Path):
    loaded = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]+)"
    )
    pages = list(site.rglob("*.html"))
    assert pages
    found = {path.name: loaded.findall(path.read_text("utf-8")) for path in pages}
    assert {name: urls for name, urls in found.items() if urls} == {}
    styles = [
        path for path in site.rglob("*.css") if re.search(r"url\(.?https?:", path.read_text())
    ]
    assert styles == []


def test_every_page_is_in_the_navigation(root: Path):
    settings = (root / "mkdocs.yml").read_text("utf-8")
    pages = [str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")]
    assert [page for page in pages if page not in settings] == []


def test_every_public_class_shows_its_constructor(site: Path):
    page = (site / "reference/api.html").read_text("utf-8")
    text = html.unescape(re.sub("<[^>]+>", "", page))
    classes = [name for name in de.__all__ if inspect.isclass(getattr(de, name))]
    classes.remove("RowStore")  # a protocol
    assert [name for name in classes if not re.search(rf"^{name}\(", text, re.MULTILINE)] == []
    assert "__getattr__" not in text


def test_every_public_name_is_in_the_api_reference(root: Path):
    page = (root / "docs/reference/api.md").read_text("utf-8")
    described = set(re.findall(r"^::: de_core\.([\w.]+)$", page, re.MULTILINE))
    modules = {"callbacks", "checkpoint", "distributed", "layers", "metrics", "optimizers", "tfra"}
    names = {name for name in de.__all__ if name not in modules}
    for module in ("checkpoint", "distributed", "metrics"):
        names |= {f"{module}.{name}" for name in getattr(de, module).__all__}
    assert names - described - {"checkpoint.TableState"} == set()
