"""Build the package with the program for this platform: ``python -m npm.build``.

It needs PyInstaller, and the package with the extras that the program is to have: ``redis``, ``tls`` and
``completion``. The result is ``npm/dist/NAME.tgz``, as ``npm pack`` makes it.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path

from docs.generate.npm import NPM, PLATFORMS, platform_package, project, shared_fields

MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
"""The names that Node.js has for processors, by those that Python has."""
SPEC = NPM / "program" / "pytest-fakecloud.spec"
README = """\
# {name}

The program of [pytest-fakecloud](https://www.npmjs.com/package/pytest-fakecloud) for {platform}.
Install that package, which depends on this one.
"""


LIBRARIES = """\
Libraries that Python is linked with, if they are in this package:

OpenSSL (Apache-2.0, whose text is above), libffi (MIT), Expat (MIT), zlib (Zlib), bzip2 (bzip2-1.0.6),
liblzma (0BSD), libuuid (BSD-3-Clause), and of GCC libgcc, libstdc++, libgfortran and libquadmath
(GPL-3.0-or-later WITH GCC-exception-3.1, LGPL-2.1-or-later). The program itself is started by the
bootloader of PyInstaller (GPL-2.0-or-later WITH Bootloader-exception).
"""


def this_platform() -> str:
    """Return this platform as Node.js names it; raise ``SystemExit`` if no package is built for it."""
    machine = platform.machine()
    name = f"{sys.platform}-{MACHINES.get(machine, machine)}"
    if name not in PLATFORMS:
        raise SystemExit(f"there is no package for {name}, only for {', '.join(PLATFORMS)}")
    return name


def build(output: Path) -> Path:
    """Build the program and its package; return the path of the packed package."""
    name = this_platform()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        package = work / "package"
        subprocess.run(
            [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN",
             "--distpath", str(package), "--workpath", str(work / "build"), str(SPEC)],
            check=True,
        )  # fmt: skip
        program = package / "program"
        without_links(program)
        strip(program)
        check(program)
        (package / "package.json").write_text(package_json(name), "utf-8")
        (package / "README.md").write_text(
            README.format(name=platform_package(name), platform=name), "utf-8"
        )
        shutil.copy(NPM / "LICENSE", package)
        (package / "THIRD_PARTY_LICENSES.txt").write_text(licences(program), "utf-8")
        return pack(package, output)


def pack(package: Path, output: Path) -> Path:
    """Pack the folder of a package; return the path of the result."""
    output.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed")
    done = subprocess.run(
        [npm, "pack", "--json", "--pack-destination", str(output.absolute())],
        cwd=package, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    packed = json.loads(done.stdout)
    # A list in older versions of npm, an object by name in newer ones.
    (entry,) = packed if isinstance(packed, list) else packed.values()
    return output / str(entry["filename"])


def package_json(name: str) -> str:
    """Return ``package.json`` of the package with the program for a platform."""
    system, processor = name.split("-")
    package = shared_fields() | {
        "name": platform_package(name),
        "description": f"The program of pytest-fakecloud for {name}",
        "os": [system],
        "cpu": [processor],
        "preferUnplugged": True,
        "publishConfig": {"access": "public"},
    }
    if system == "linux":
        package["libc"] = ["glibc"]
    return json.dumps(package, indent=2) + "\n"


def without_links(program: Path) -> None:
    """Replace symbolic links, which packages of npm cannot contain."""
    for link in [path for path in program.rglob("*") if path.is_symlink()]:
        target = link.resolve()
        link.unlink()
        # The libraries of a wheel are found beside its modules, without the link.
        if not target.parent.name.endswith(".libs"):
            (shutil.copytree if target.is_dir() else shutil.copy2)(target, link)


def strip(program: Path) -> None:
    """Remove the debug symbols of Python itself. The libraries of wheels have none, and some break."""
    if sys.platform == "linux":
        internal = program / "_internal"
        files = [*internal.glob("libpython*"), *internal.glob("python*/lib-dynload/*.so")]
        subprocess.run(["strip", "--strip-unneeded", *map(str, files)], check=True)


def executable(program: Path) -> Path:
    return program / f"pytest-fakecloud{'.exe' if sys.platform == 'win32' else ''}"


def check(program: Path) -> None:
    """Check that the program starts and has the version of the project."""
    command = [str(executable(program)), "--version"]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if shown.split() != ["pytest-fakecloud", project()["version"]]:
        raise SystemExit(f"the program says {shown!r}: install the package before the build")


# -- licences --------------------------------------------------------------------------------------


def licences(program: Path) -> str:
    """Return the licences of Python and of all distributions that the program contains."""
    standard = Path(sysconfig.get_path("stdlib"))
    files = [standard / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt"]
    own = next((file.read_text("utf-8") for file in files if file.exists()), "")
    if not own:
        raise SystemExit(f"Python has no LICENSE.txt at {' or '.join(map(str, files))}")
    texts = [f"Python {platform.python_version()}\n\n{own}"]
    for name in distributions(program):
        entry = distribution(name)
        terms = "\n\n".join(_licence_files(entry)) or str(entry.metadata["License"] or "")
        if not terms:
            raise SystemExit(f"{name} has no licence text: add one to {__name__}")
        texts.append(f"{entry.metadata['Name']} {entry.version}\n\n{terms}")
    texts.append(LIBRARIES)
    return f"\n{'-' * 80}\n".join(texts)


def _licence_files(entry: Distribution) -> Iterator[str]:
    for file in entry.files or ():
        path = Path(str(file))
        if ".dist-info" in path.parts[0] and path.name.upper().startswith(
            ("LICEN", "COPYING", "NOTICE", "AUTHORS")
        ):
            yield Path(str(file.locate())).read_text("utf-8", "replace")


def distributions(program: Path) -> list[str]:
    """Return the names of the distributions whose modules are in the program, without the project's."""
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(executable(program)))
    # Without an archive of modules, which only Windows has, they are all in the folder.
    modules = archive.open_embedded_archive("PYZ.pyz").toc
    top_names = {name.partition(".")[0] for name in modules}
    top_names |= {path.name.partition(".")[0] for path in (program / "_internal").iterdir()}
    owners = packages_distributions()
    names = {name for top_name in top_names for name in owners.get(top_name, ())}
    return sorted(names - {project()["name"]}, key=str.lower)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m npm.build", description=__doc__)
    parser.add_argument("--output", type=Path, default=NPM / "dist", help="where to put the result")
    packed = build(parser.parse_args().output)
    print(f"{packed}: {packed.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
