"""Files of libraries and of the application, in the layouts that installers create."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import upstash_redis

import pytest_fakecloud
from pytest_fakecloud.core import libraries
from pytest_fakecloud.core.libraries import add_test, is_library

SITE = "lib/python3.12/site-packages"


@pytest.fixture(autouse=True)
def _project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A project with the tests of this module, whose distribution is `my-shop`."""
    monkeypatch.setattr(libraries, "_test_folders", {})
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my-shop"\n')
    monkeypatch.chdir(tmp_path)
    add_test(str(tmp_path / "tests" / "test_shop.py"))
    yield
    monkeypatch.undo()
    add_test("elsewhere")
    del libraries._test_folders[""]


def write(root: Path, *files: str, text: str = "pass") -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)


def install(root: Path, name: str, *files: str, origin: object = None, record: str = "") -> None:
    """Write a distribution with its metadata, as an installer does."""
    write(root, *files)
    metadata = f"{name}-1.0.dist-info"
    lines = "".join(f"{file},sha256=x,4\n" for file in files)
    write(root, f"{metadata}/RECORD", text=record or f"{lines}{metadata}/RECORD,,\n")
    if origin is not None:
        write(root, f"{metadata}/direct_url.json", text=json.dumps(origin))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (pytest_fakecloud.__file__, True),
        (pytest_fakecloud.__file__.replace("fakecloud", "fakecloud_example"), False),
        (json.__file__, True),
        (pytest.__file__, True),
        ("<frozen importlib._bootstrap>", True),
        ("/opt/other/lib/python3.12/site-packages/redis/client.py", True),
        ("/usr/lib/python3/dist-packages/redis/client.py", True),
        (f"{sysconfig.get_path('stdlib')}/site-packages/other/client.py", True),
        ("/home/ann/site-packages-demo/app.py", False),
        ("<string>", False),
        (__file__, False),
    ],
)
def test_files_of_libraries(name: str, expected: bool) -> None:
    assert is_library(name) is expected


@pytest.mark.parametrize("site", [SITE, "__pypackages__/3.12/lib", "vendor", "."])
def test_a_distribution_is_a_library_wherever_it_is_installed(tmp_path: Path, site: str) -> None:
    root = tmp_path / site
    install(root, "redis", "redis/client.py", "acme/redis.py")
    install(root, "six", "six.py")
    install(root, "My.Shop", "shop/app.py", "acme/shop.py")
    write(root, "redis/generated.py")
    files = ["redis/client.py", "redis/generated.py", "six.py", "acme/redis.py"]
    assert [is_library(str(root / file)) for file in files] == [True] * 4
    assert not is_library(str(root / "shop" / "app.py"))
    assert not is_library(str(root / "acme" / "shop.py")), "of a namespace package"
    write(tmp_path, "app/main.py", "tests/redis/client.py", "conftest.py")
    for file in ("app/main.py", "tests/redis/client.py", "conftest.py"):
        assert not is_library(str(tmp_path / file))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[tool.poetry]\nname = "big_store"'),
        ("setup.cfg", "[metadata]\nversion = 1\nname = big-store\n[options]\n"),
        ("setup.py", "from setuptools import setup\nsetup(name='big.store', version='1')"),
        ("big_store.egg-info/PKG-INFO", "Name: big-store"),
        ("src/big_store.egg-info/PKG-INFO", "Name: big-store"),
    ],
)
def test_a_project_declares_the_name_of_the_application(
    tmp_path: Path, file: str, text: str
) -> None:
    install(tmp_path / SITE, "big_store", "store.py")
    assert is_library(str(tmp_path / SITE / "store.py"))
    write(tmp_path / "project", file, text=text)
    add_test(str(tmp_path / "project" / "tests" / "unit" / "test_store.py"))
    assert not is_library(str(tmp_path / SITE / "store.py"))


def test_an_application_is_known_by_its_origin(tmp_path: Path) -> None:
    site = tmp_path / SITE
    local = {"url": f"file://{tmp_path}/my%20repo", "dir_info": {"editable": False}}
    write(tmp_path, "my repo/store.py")
    install(site, "store", "store.py", origin=local)
    built = {"url": "file:///croot/redis_1700/work", "dir_info": {}}
    install(site, "redis", "redis.py", origin=built)
    remote = {"url": "https://git.example.com/six.git", "vcs_info": {"vcs": "git"}}
    install(site, "six", "six.py", origin=remote)
    assert not is_library(str(site / "store.py"))
    assert not is_library(str(tmp_path / "my repo" / "store.py")), "the original"
    assert is_library(str(site / "redis.py"))
    assert is_library(str(site / "six.py"))


def test_an_application_contains_its_tests(tmp_path: Path) -> None:
    site = tmp_path / SITE
    install(site, "store", "store/app.py", "store/tests/test_app.py")
    assert is_library(str(site / "store" / "app.py"))
    add_test(str(site / "store" / "tests" / "test_app.py"))
    assert not is_library(str(site / "store" / "app.py"))


def test_distributions_without_a_list_of_files(tmp_path: Path) -> None:
    site = tmp_path / SITE
    write(site, "redis-1.0.dist-info/METADATA", "yaml-1.egg-info", "my_shop-1.dist-info/METADATA")
    write(site, "my_shop-1.dist-info/top_level.txt", text="shop")
    write(site, "old-1.0-py3.11.egg/EGG-INFO/PKG-INFO", "my_shop-1.0-py3.11.egg/EGG-INFO/PKG-INFO")
    for file in ("redis/client.py", "yaml/reader.py", "unknown.py", "old-1.0-py3.11.egg/old/a.py"):
        assert is_library(str(site / file)), file
    for file in ("shop/app.py", "my_shop-1.0-py3.11.egg/shop/app.py"):
        assert not is_library(str(site / file)), file


def test_a_file_that_belongs_to_nobody_is_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / SITE
    install(site, "redis", "redis/client.py")
    monkeypatch.syspath_prepend(str(site))
    write(site, "shop/app.py")
    assert not is_library(str(site / "shop" / "app.py"))
    assert is_library(str(site / "redis" / "client.py"))


def test_a_copy_of_an_installed_file_is_a_library(tmp_path: Path) -> None:
    folder = Path(upstash_redis.__file__).parent
    shutil.copytree(folder, tmp_path / "app" / "vendor" / "upstash_redis")
    copied = tmp_path / "app" / "vendor" / "upstash_redis"
    assert is_library(str(copied / "client.py"))
    (copied / "own.py").write_text("pass")
    assert not is_library(str(copied / "own.py"))


@pytest.mark.parametrize("prefix", ["", ".deps/all.whl/"])
def test_libraries_in_an_archive(tmp_path: Path, prefix: str) -> None:
    root = tmp_path / "root"
    install(root / prefix, "redis", "redis/client.py")
    install(root / prefix, "my_shop", "shop/app.py")
    write(root, "main.py")
    folder = Path(upstash_redis.__file__).parent
    shutil.copytree(folder, root / "copied" / "upstash_redis")
    shutil.make_archive(str(tmp_path / "app"), "zip", root)
    assert zipfile.is_zipfile(tmp_path / "app.zip")
    archive = f"{tmp_path}/app.zip"
    assert is_library(f"{archive}/{prefix}redis/client.py")
    assert is_library(f"{archive}/copied/upstash_redis/client.py")
    assert not is_library(f"{archive}/{prefix}shop/app.py")
    assert not is_library(f"{archive}/main.py")


def test_sources_of_an_editable_installation_are_the_application(tmp_path: Path) -> None:
    site = tmp_path / SITE
    install(site, "store", "__editable___store_finder.py")
    write(tmp_path / "store", "src/store/app.py", "src/store.egg-info/SOURCES.txt")
    assert not is_library(str(tmp_path / "store" / "src" / "store" / "app.py"))
    assert is_library(str(site / "__editable___store_finder.py"))


def test_a_deleted_working_directory_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    add_test(str(tmp_path / "more" / "test_more.py"))
    assert is_library(pytest.__file__)
    assert not is_library("relative/app.py")
    assert str(tmp_path) not in sys.path


def test_replaced_functions_of_files_change_nothing(tmp_path: Path) -> None:
    site = tmp_path / SITE
    install(site, "my_shop", "shop/app.py")
    with (
        mock.patch("builtins.open", mock.mock_open(read_data="x")),
        mock.patch("os.listdir", return_value=["redis-1.0.dist-info"]),
        mock.patch("os.path.exists", return_value=True),
        mock.patch("os.path.isfile", return_value=True),
    ):
        assert not is_library(str(site / "shop" / "app.py"))
        assert not is_library(str(tmp_path / "app" / "main.py"))


def test_installed_distributions_are_read_once_for_tests_in_any_folder(tmp_path: Path) -> None:
    site = tmp_path / SITE
    install(site, "store", "store/app.py", "store/tests/test_app.py")
    assert is_library(str(site / "store" / "app.py"))
    with mock.patch.object(libraries, "_list", side_effect=OSError):
        add_test(str(tmp_path / "other" / "test_other.py"))
        assert is_library(str(site / "store" / "app.py"))
        add_test(str(site / "store" / "tests" / "test_app.py"))
        assert not is_library(str(site / "store" / "app.py"))
