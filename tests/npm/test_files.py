"""Check the generated files of the npm package, its metadata, and its types."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..clients.node import install, need
from ..docs.blocks import DOCS
from ..harness import check_each

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)

from docs.generate.npm import FILES, NPM, PLATFORMS, platform_package, project, version

PACKAGE: dict[str, Any] = json.loads((NPM / "package.json").read_text("utf-8"))
SHARED = {
    "compilerOptions": {
        "noEmit": True, "strict": True, "skipLibCheck": True, "module": "nodenext", "target": "es2022",
        "lib": ["es2022", "esnext.disposable"], "types": ["node"],
    },
}  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_file_is_current(file: Path) -> None:
    assert file.read_text("utf-8") == FILES[file](), "run: python -m docs.generate"


def test_the_version_is_that_of_the_project() -> None:
    assert PACKAGE["version"] == version(project()["version"])
    assert set(PACKAGE["optionalDependencies"].items()) == {
        (platform_package(platform), PACKAGE["version"]) for platform in PLATFORMS
    }


def test_versions_of_python_become_semantic_versions() -> None:
    def check(python: str, npm: str) -> None:
        assert version(python) == npm

    check_each(check, [
        ("1.2.0", "1.2.0"), ("1.2.0rc1", "1.2.0-rc.1"), ("0.1.0a2", "0.1.0-alpha.2"),
        ("0.1.0b3", "0.1.0-beta.3"), ("2.0.0.dev4", "2.0.0-dev.4"),
    ])  # fmt: skip
    with pytest.raises(ValueError, match=r"1\.2\.0\.post1"):
        version("1.2.0.post1")


def test_every_exported_file_is_packed() -> None:
    paths = re.findall(r'(?<=: )"\./([\w./-]+)"', json.dumps(PACKAGE["exports"]))
    assert len(paths) > 8
    for path in [*paths, PACKAGE["main"], PACKAGE["types"], PACKAGE["bin"]]:
        assert (NPM / path).is_file(), path
        assert path.partition("/")[0] in (*PACKAGE["files"], "package.json"), path


def test_the_release_builds_a_program_for_every_platform() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = NPM.parent / ".github" / "workflows" / "release.yml"
    if not workflow.exists():
        pytest.skip("the source distribution has no files of the repository")
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    built = {entry["platform"] for entry in jobs["programs"]["strategy"]["matrix"]["include"]}
    assert built == {*PLATFORMS}
    # Besides the programs, the package that depends on them.
    assert f"= {len(PLATFORMS) + 1}\n" in str(jobs["publish-npm"]["steps"][-1]["run"])


# -- types -----------------------------------------------------------------------------------------


def compiled(folder: Path, options: dict[str, Any]) -> str:
    """Return the errors of the TypeScript compiler for a folder."""
    need("typescript", "@types/node", "@playwright/test", "vitest")
    install(folder)
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    (folder / "tsconfig.json").write_text(json.dumps(options), "utf-8")
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        ["node", str(compiler), "--pretty", "false", "--project", str(folder)],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_modules_have_the_types_that_they_declare(tmp_path: Path) -> None:
    options = {
        "compilerOptions": SHARED["compilerOptions"] | {"allowJs": True, "checkJs": True},
        # Files in node_modules are not checked, unless they are given by name.
        "files": sorted(
            f"node_modules/pytest-fakecloud/{path.relative_to(NPM).as_posix()}"
            for folder in ("bin", "lib")
            for path in (NPM / folder).iterdir()
            if path.suffix in (".js", ".mjs")
        ),
    }
    assert compiled(tmp_path, options) == ""


TYPED = """
import { call, clock, control, env, faults, startCloud, type Moved } from "pytest-fakecloud"
import { expect, test } from "pytest-fakecloud/playwright"
import "pytest-fakecloud/vitest"
import { defineConfig } from "vitest/config"

export default defineConfig({ test: { provide: { fakecloud: { services: { kv: {} }, seed: 7 } } } })

const moved: Moved = await clock.advance("1h")
const [first]: string[] = moved.fired
const url: string | undefined = env.UPSTASH_REDIS_REST_URL
const ttl = await call<number>("kv_server", "ttl", ["session:7"])
ttl.toFixed()
await faults.inject("kv_server", "respond", { args: [503], command: "SET", times: 1 })
const letters = await control("GET", "/fakes/queue/dead-letters")
await control("POST", `/fakes/queue/dead-letters/${letters[0]?.id}`)
const rows = await control("GET", "/journal?after=7")
rows.map((row) => row.fake.toUpperCase())
await using cloud = await startCloud({ services: { kv: { daily_limit: 10 } }, setEnv: true })
test("an order", async ({ cloud, page }) => {
  await page.goto("/")
  await expect(cloud).toHaveCall("kv_server", "SET", { key: "order:*" }, { timeout: 100 })
  await expect(cloud).not.toHaveWorkflowRun({ url: /order/ })
  await expect(page).toHaveTitle("Orders")
})
export { first, url, cloud }
"""
WRONG = [
    'await clock.leap("1h")',
    'await control("GET", "/nothing")',
    'await control("POST", "/clock", { action: "leap" })',
    'await control("POST", "/clouds", { seeds: 1 })',
    '(await control("GET", "/clock")).later',
    'await startCloud({ clock: "slow" })',
    'env.NAME = "1"',
]


@pytest.mark.slow
def test_wrong_uses_are_errors_of_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "right.ts").write_text(TYPED, "utf-8")
    head = 'import { clock, control, env, startCloud } from "pytest-fakecloud"\n'
    (tmp_path / "wrong.ts").write_text(head + ";\n".join(WRONG), "utf-8")
    errors = compiled(tmp_path, SHARED | {"files": ["right.ts", "wrong.ts"]})
    assert "right.ts" not in errors, errors
    lines = re.findall(r"^wrong\.ts\((\d+),\d+\): error", errors, re.M)
    assert list(map(int, lines)) == list(range(2, len(WRONG) + 2)), errors
