"""Tells the files of libraries from those of the application, for reports, call sites and `explore()`.

A file belongs to the standard library, to this package, or to an installed distribution, or else it is
the application's. Distributions are found by their metadata, which lie beside their files: in
``site-packages``, in a folder of ``pip install --target``, in ``__pypackages__`` or in an archive. A
copy of an installed file is a library's, too. A distribution is the application's

- if the project of the tests declares its name: in a ``pyproject.toml``, ``setup.cfg``, ``setup.py`` or
  ``.egg-info`` in a folder of a test or above it, or above the working directory
- if it was installed from a directory that exists, as with ``pip install .``
- if it contains the tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from os import getcwd, listdir
from os.path import abspath, exists, isdir, isfile
from typing import Any, NamedTuple

from .frames import CodePlace

_FOLDER = f"{os.path.dirname(os.path.dirname(__file__))}{os.sep}"
_SITES = frozenset({"site-packages", "dist-packages"})
"""Names of the folders into which installers put distributions."""
# Tests may replace this function, and those of os imported above, while a file is looked up.
_open = open
_METADATA = (".dist-info", ".egg-info")
_NAME_IN_SETUP = r"""\bname\s*=\s*["']([\w.-]+)["']"""
_test_folders: dict[str, None] = {}


def add_test(path: str) -> None:
    """Add the file of a test, whose project and distribution are the application's."""
    folder = os.path.dirname(path)
    if folder not in _test_folders:
        _test_folders[folder] = None
        for cached in (is_library, _is_application, _names_of_application):
            cached.cache_clear()


@lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Return whether a file belongs to a library, perhaps of another environment, or to this package."""
    if filename.startswith((_FOLDER, "<frozen")):
        return True
    if filename.startswith("<"):
        return False
    with suppress(FileNotFoundError):  # The working directory was deleted.
        filename = abspath(filename)
    parts = filename.split(os.sep)
    in_site = not _SITES.isdisjoint(parts[:-1])
    if not in_site and filename.startswith(_standard_library()):
        return True
    for folder in _parents(filename):
        with suppress(OSError, ValueError):  # such as a folder of another machine
            is_of_library = _distributions(folder).verdict(filename[len(folder) + 1 :])
            if is_of_library is not None:
                return is_of_library
    if in_site:
        at = max(at for at, part in enumerate(parts[:-1]) if part in _SITES)
        if not _belongs_to_nobody(os.sep.join(parts[: at + 1])):
            return True
    return any(map(is_library, _originals(filename)))


def without_library_frames(error: BaseException) -> BaseException:
    """Return an exception whose traceback begins in the application, if it passes through it."""
    traceback = error.__traceback__
    while traceback is not None and is_library(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    return error if traceback is None else error.with_traceback(traceback)


def outside_libraries(places: Iterable[CodePlace]) -> tuple[CodePlace, ...]:
    """Return the places in the files of the application and of its tests."""
    return tuple(place for place in places if not is_library(place[0].co_filename))


def _belongs_to_nobody(site: str) -> bool:
    """Return whether an unknown file in a folder of this environment belongs to no distribution."""
    try:
        return site in map(abspath, filter(None, sys.path)) and _distributions(site).is_complete
    except OSError:
        return False


@lru_cache
def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name].rstrip(os.sep) + os.sep for name in ("stdlib", "platstdlib"))


def _parents(path: str) -> Iterator[str]:
    """Yield the folders that contain a path, from the innermost outwards."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


# -- distributions ---------------------------------------------------------------------------------


class _Distribution(NamedTuple):
    """An installed distribution: where its metadata lie, and the folders beside them with its files."""

    folder: str
    metadata: str
    subfolders: frozenset[str]


class _Distributions:
    """The distributions whose metadata lie in one folder."""

    def __init__(self, folder: str) -> None:
        self._owners: dict[str, tuple[_Distribution, ...]] = {}
        """The distributions of each file, and of each folder that contains files."""
        self.is_complete = True
        """Whether every distribution lists its files."""
        self._egg = ""
        for entry in _list(folder):
            if entry == "EGG-INFO":
                self._egg = os.path.basename(folder)
            elif entry.endswith(_METADATA):
                self._add(folder, entry)

    def _add(self, folder: str, entry: str) -> None:
        record = _text(folder, entry, "RECORD") or _text(folder, entry, "installed-files.txt")
        is_egg = entry.endswith(".egg-info")
        if is_egg and not record and os.path.basename(folder) not in _SITES:
            return  # It describes the sources beside it.
        paths = (line.rsplit(",", 2)[0].strip('"') for line in record.splitlines())
        files = [path.replace("/", os.sep) for path in paths if path.endswith(".py")]
        if is_egg:  # which lists files relative to itself
            files = [os.path.normpath(os.path.join(entry, file)) for file in files]
        if not record:
            self.is_complete = False
            name = entry.partition("-")[0].removesuffix(".egg")
            names = _text(folder, entry, "top_level.txt").split() or [name, name.lower()]
            files = [file for name in names for file in (f"{name}.py", os.path.join(name, ""))]
        folders = {file.rpartition(os.sep)[0] for file in files}
        folders = {parent for path in folders for parent in (path, *_parents(path)) if parent}
        owner = _Distribution(folder, entry, frozenset(folders))
        for path in folders:
            # A namespace can contain several distributions.
            self._owners[path] = (*self._owners.get(path, ()), owner)
        self._owners.update(dict.fromkeys(files, (owner,)))

    def verdict(self, path: str) -> bool | None:
        """Return whether a file is a library's; None if it belongs to no distribution here."""
        if self._egg:
            return not _is_name_of_application(self._egg)
        places = (path, *_parents(path))
        owners = next((self._owners[place] for place in places if place in self._owners), None)
        return None if owners is None else not all(map(_is_application, owners))


_distributions = cache(_Distributions)


@cache
def _is_application(distribution: _Distribution) -> bool:
    """Return whether a distribution is the application under test."""
    folder, metadata, subfolders = distribution
    if _is_name_of_application(metadata):
        return True
    with suppress(ValueError, AttributeError):
        origin: Any = json.loads(_text(folder, metadata, "direct_url.json") or "{}")
        path = str(origin.get("url", "")).removeprefix("file://")
        # Builders of packages leave the URL of a directory on their machine.
        if "dir_info" in origin and isdir(_unquoted(path)):
            return True
    own = {os.path.join(folder, subfolder) for subfolder in subfolders}
    return not own.isdisjoint(_test_folders)


def _unquoted(path: str) -> str:
    return re.sub("%([0-9a-fA-F]{2})", lambda code: chr(int(code[1], 16)), path)


def _is_name_of_application(entry: str) -> bool:
    """Return whether a name such as ``my_shop-1.0.dist-info`` is that of the project of the tests."""
    name = re.sub(r"\.(dist-info|egg-info|egg)$", "", entry).partition("-")[0]
    return _normalised(name) in _names_of_application()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@lru_cache
def _names_of_application() -> frozenset[str]:
    """Return the names that the projects of the tests declare."""
    files = [os.path.join(folder, "test") for folder in _test_folders]
    with suppress(FileNotFoundError):
        files.append(os.path.join(getcwd(), "test"))
    folders = dict.fromkeys(folder for file in files for folder in _parents(file))
    return frozenset[str]().union(*map(_declared_names, folders))


@cache
def _declared_names(folder: str) -> frozenset[str]:
    """Return the names of the distribution that is built from a folder."""
    return frozenset(map(_normalised, _read_names(folder)))


def _read_names(folder: str) -> Iterator[str]:
    if _SITES.intersection(folder.split(os.sep)):
        return
    if text := _text(folder, "pyproject.toml"):
        with suppress(tomllib.TOMLDecodeError, AttributeError):
            document: Any = tomllib.loads(text)
            tools = document.get("tool", {})
            yield str(document.get("project", {}).get("name", ""))
            yield str(tools.get("poetry", {}).get("name", ""))
            yield str(tools.get("flit", {}).get("metadata", {}).get("module", ""))
    if metadata := re.search(r"^\[metadata\]([^\[]*)", _text(folder, "setup.cfg"), re.MULTILINE):
        yield from re.findall(r"^name\s*=\s*(\S+)", metadata[1], re.MULTILINE)
    yield from re.findall(_NAME_IN_SETUP, _text(folder, "setup.py"))
    for place in (folder, os.path.join(folder, "src")):
        with suppress(OSError):
            yield from (
                entry.removesuffix(".egg-info")
                for entry in _list(place)
                if entry.endswith(".egg-info")
            )


# -- copies ----------------------------------------------------------------------------------------


def _originals(filename: str) -> Iterator[str]:
    """Yield the installed files of which a file is a copy."""
    sites = [
        folder
        for folder in map(abspath, filter(None, sys.path))
        if os.path.basename(folder) in _SITES and not filename.startswith(f"{folder}{os.sep}")
    ]
    content = b""
    for folder in _parents(filename):
        for site in sites:
            original = os.path.join(site, filename[len(folder) :].lstrip(os.sep))
            if isfile(original):
                content = content or _read(filename)
                if content and content == _read(original):
                    yield original


# -- files and archives ----------------------------------------------------------------------------


def _list(folder: str) -> Iterable[str]:
    """Return the names in a folder, which may be in an archive; raise OSError if there is none."""
    try:
        return listdir(folder)
    except OSError:
        archive, inside = _archive_of(folder)
        if not archive:
            raise
    with zipfile.ZipFile(archive) as opened:
        start = f"{inside}/" if inside else ""
        names = [name for name in opened.namelist() if name.startswith(start)]
    return {name.removeprefix(start).partition("/")[0] for name in names}


def _read(path: str) -> bytes:
    """Return the content of a file, which may be in an archive; empty if there is none."""
    try:
        with _open(path, "rb") as file:
            return file.read()
    except OSError:
        archive, inside = _archive_of(path)
        if not archive:
            return b""
    with suppress(KeyError), zipfile.ZipFile(archive) as opened:
        return opened.read(inside)
    return b""


def _text(*path: str) -> str:
    return _read(os.path.join(*path)).decode("utf-8", "replace")


def _archive_of(path: str) -> tuple[str, str]:
    """Return the archive that contains a path, and the path in it; empty strings without one."""
    archive = next(filter(exists, (path, *_parents(path))), "")
    if not isfile(archive):
        return "", ""
    inside = path[len(archive) + 1 :].replace(os.sep, "/")
    return (archive, inside) if zipfile.is_zipfile(archive) else ("", "")
