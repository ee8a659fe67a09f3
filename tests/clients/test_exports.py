"""Every public name of the official Python clients is used by a test, or excused with a reason.

The walks over the methods of each client are in its own file; `exports.test.mjs` does the same for
the JavaScript clients.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients.surface import check_complete

ROOT = Path(__file__).parents[2]
CLIENTS = ("upstash_redis", "upstash_vector", "qstash", "upstash_ratelimit", "upstash_workflow")
EXCUSED: dict[str, str] = {}
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in Path(__file__).parent.glob("test_*.py")
    if path != Path(__file__)
)


def exports(module: ModuleType) -> list[str]:
    """Return the public names of a package."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith(module.__name__.partition(".")[0])
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_export_of_a_client_is_used(client: str) -> None:
    package = pytest.importorskip(client)
    packages = [package] + [
        importlib.import_module(part.name)
        for part in pkgutil.walk_packages(package.__path__, f"{client}.")
        if part.ispkg
    ]
    names = {f"{part.__name__}.{name}" for part in packages for name in exports(part)}
    assert names
    unused = {name for name in names if not re.search(rf"\b{name.rpartition('.')[2]}\b", SOURCES)}
    check_complete(__file__, unused - set(EXCUSED))


def test_the_page_on_fidelity_has_the_versions_of_the_clients() -> None:
    page = (ROOT / "docs" / "fidelity" / "index.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"`(@?[\w/-]+)` (\d[\d.]*)", page))
    pins = json.loads((Path(__file__).parent / "js" / "package.json").read_text(encoding="utf-8"))
    javascript = {
        name: version
        for name, version in pins["dependencies"].items()
        if name.startswith("@upstash/")
    }
    assert {name: listed.get(name) for name in javascript} == javascript
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ntest = [")[2]
    for client in CLIENTS:
        name = client.replace("_", "-")
        minimum = re.search(rf'"{name}>=([\d.]+)"', project)
        assert minimum is not None
        assert f"{listed[name]}.".startswith(f"{minimum[1]}."), name
