"""Test the published files: metadata, both distributions, and the project's files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LIBRARIES = ("redis", "kafka", "tls", "time", "completion")
"""Extras with libraries that the package uses."""
REPOSITORY = PROJECT["project"]["urls"]["Source"]

needs_checkout = pytest.mark.skipif(
    not (ROOT / ".github").is_dir(), reason="the source distribution has no files of the repository"
)


def floors() -> dict[str, str]:
    """Return the oldest supported version of each library, by normalized name."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in LIBRARIES for line in extras[name])]
    versions = {}
    for line in lines:
        name, version = re.fullmatch(r"([\w.-]+)>=([\w.]+)(?:;.*)?", line).groups()  # type: ignore[union-attr]
        versions[name.lower().replace("_", "-")] = version
    return versions


def padded(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def test_what_tox_calls_lowest_is_the_lowest() -> None:
    lines = (ROOT / "tests" / "lowest.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {name.lower(): padded(version) for name, version in pins.items()}
    assert pinned == {name: padded(version) for name, version in floors().items()}


def test_every_import_of_the_package_is_declared() -> None:
    """Every unconditional import is a dependency, and every dependency is imported."""
    names = {"jwt": "pyjwt", "jsonpath": "python-jsonpath", "confluent_kafka": "confluent-kafka",
             "Stemmer": "pystemmer"}  # fmt: skip
    imported = set()
    for path in (ROOT / "pytest_fakecloud").rglob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            match = re.match(r"\s*(?:import|from) ([A-Za-z]\w*)", line)
            if match:
                name = match.group(1)
                imported.add(names.get(name, name.replace("_", "-")))
    declared = set(floors()) - {"tzdata"}
    assert not (declared - imported - {"responses"})
    assert {"urllib3", "requests", "werkzeug"} <= declared


# -- what is built ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a source distribution, and a wheel from it."""
    for module in ("build", "hatchling"):
        pytest.importorskip(module)
    folder: Path = tmp_path_factory.mktemp("dist")
    build("build", "--no-isolation", "--outdir", str(folder))
    return folder


def build(*command: str) -> None:
    subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
    )


def metadata(built: Path) -> Message:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.mark.slow
def test_the_source_distribution_holds_all_that_its_readme_tells_of(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for file in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "tox.ini",
                 "CITATION.cff", "docs/conf.py", "docs/index.md", "tests/conftest.py",
                 "docker/Dockerfile", "tests/lowest.txt", "npm/package.json", "npm/lib/index.js",
                 "benchmarks/start.py",
                 "examples/checkout/test_checkout.py"):  # fmt: skip
        assert file in names, file
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data_alone(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    package = ROOT / "pytest_fakecloud"
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.slow
def test_links_of_the_readme_work_on_a_package_index(built: Path) -> None:
    text = str(metadata(built).get_payload())
    assert "# pytest-fakecloud" in text
    assert re.findall(r"\]\((?![a-z]+:|#)[^)]*\)", text) == []
    assert re.findall(r'(?:src|srcset|href)="(?![a-z]+:|#)[^"]*"', text) == []
    site = PROJECT["project"]["urls"]["Documentation"]
    pages = re.findall(rf"{re.escape(site)}([\w/-]+)\.html", text)
    assert pages
    for page in pages:
        assert (ROOT / "docs" / f"{page}.md").is_file(), page


@pytest.mark.slow
def test_the_metadata_says_what_holds(built: Path) -> None:
    fields = metadata(built)
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "MIT"
    urls = dict(value.split(", ") for value in fields.get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(urls)
    pytest.importorskip("twine")
    files = [str(path) for path in built.iterdir()]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """The second wheel is built directly from the checkout."""
    build("hatchling", "build", "-d", str(tmp_path))
    first, second = (
        {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (built, tmp_path)
    )
    assert first == second
    assert len(first) == 2


# -- files about the project -----------------------------------------------------------------------


def test_the_repository_has_one_address() -> None:
    """It is in pyproject.toml. Files that cannot read it there must contain the same."""
    for name in ("CITATION.cff", "README.md", "SECURITY.md", "CONTRIBUTING.md", "pyproject.toml"):
        text = (ROOT / name).read_text("utf-8")
        for address in re.findall(r"https://github\.com/[\w.-]*fakecloud[\w.-]*/[\w.-]+", text):
            assert address == REPOSITORY, f"{name}: {address}"


def test_the_version_is_in_one_place() -> None:
    version = PROJECT["project"]["version"]
    assert "dynamic" not in PROJECT["project"]
    for name in ("CITATION.cff", "docs/conf.py", "pytest_fakecloud/__init__.py", "README.md"):
        assert version not in (ROOT / name).read_text("utf-8"), name


@needs_checkout
def test_the_workflows_pass_their_linter() -> None:
    try:
        files = distribution("zizmor").files or []
    except PackageNotFoundError:
        pytest.skip("zizmor is not installed")
    (program,) = (file.locate() for file in files if file.stem == "zizmor" and file.suffix != ".py")
    done = subprocess.run(
        [str(program), "--offline", "--persona", "pedantic", ".github"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@needs_checkout
def test_ci_runs_every_python_that_the_classifiers_name() -> None:
    ci = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    named = {
        match.group(1)
        for line in PROJECT["project"]["classifiers"]
        if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    }
    assert named == set(re.findall(r'"(3\.\d+)"', ci.split("python: [")[1].split("]")[0]))
    envs = (ROOT / "tox.ini").read_text("utf-8").split("env_list = ")[1].partition("\n")[0]
    assert {f"py{version.replace('.', '')}" for version in named} <= set(envs.split(", "))
