"""The Dockerfile and the compose file, checked without a container engine."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.cli import make_parser
from pytest_fakecloud.cloud.services import services_by_word
from pytest_fakecloud.standalone.options import VARIABLE, read_options

FOLDER = Path(__file__).parents[2] / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
OPTIONS = {
    action.dest.upper()
    for action in make_parser()._subparsers._group_actions[0].choices["serve"]._actions  # type: ignore[union-attr,index,call-overload]
}


def instructions() -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.M)).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line]


def test_all_that_is_copied_is_there_and_reaches_the_build() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (FOLDER.parent / source).exists(), source
                assert f"!{source}" in ignored


def test_it_runs_as_nobody_special_and_stops_by_the_signal_the_server_takes() -> None:
    by_name = dict(instructions())
    assert by_name["USER"] == "fakecloud"
    assert by_name["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(by_name["ENTRYPOINT"]) == ["pytest-fakecloud"]


def test_its_commands_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = dict(instructions())
    parsed = make_parser().parse_args(json.loads(by_name["HEALTHCHECK"].partition("CMD ")[2])[1:])
    assert (parsed.command, parsed.url) == ("health", "http://127.0.0.1:8000")
    variables = dict(word.split("=", 1) for word in shlex.split(by_name["ENV"]))
    ours = {name: value for name, value in variables.items() if name.startswith(VARIABLE)}
    assert {name.removeprefix(VARIABLE) for name in ours} <= OPTIONS
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    options = read_options(make_parser().parse_args(json.loads(by_name["CMD"])))
    ports = [options.control_port, *(service["port"] for service in options.services.values())]
    ports.append(options.services["kv"]["database_port"])
    assert (
        ports == [8000, 8001, 8002, 8003, 8004, 6379] == list(map(int, by_name["EXPOSE"].split()))
    )
    assert (options.host, options.log_format) == ("0.0.0.0", "json")


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    config: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return config["services"]  # type: ignore[no-any-return]


def test_the_compose_file_serves_what_its_application_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = compose()
    fakes, app = services["fakes"], services["app"]
    assert (FOLDER / fakes["build"]["context"] / fakes["build"]["dockerfile"]).exists()
    for name, value in fakes["environment"].items():
        assert name.removeprefix(VARIABLE) in OPTIONS
        monkeypatch.setenv(name, value)
    command = [fake.replace("/state/", f"{FOLDER}/") for fake in fakes["command"]]
    options = read_options(make_parser().parse_args(command))
    assert options.forward == {"https://app.example": "http://app:3000"}
    assert [path.exists() for path in options.load] == [True]
    assert options.allow_host == ["fakes"]
    asked = app["environment"]
    for variable, word in (
        ("UPSTASH_REDIS_REST_TOKEN", "kv"), ("UPSTASH_VECTOR_REST_TOKEN", "vector"),
        ("QSTASH_TOKEN", "queue"),
    ):  # fmt: skip
        assert asked[variable] == options.services[word]["token"]
    assert asked["PYTEST_FAKECLOUD_TOKEN"] == options.control_token
    database = options.services["kv"]
    assert (database["database_port"], database["database_password"]) == (6379, "kv-password")
    assert asked["REDIS_URL"] == "redis://default:kv-password@fakes:6379"
    assert app["depends_on"]["fakes"]["condition"] == "service_healthy"
    exposed = [800 * 10 + number for number, _ in enumerate(services_by_word(), 1)]
    for variable in ("UPSTASH_REDIS_REST_URL", "UPSTASH_VECTOR_REST_URL", "QSTASH_URL"):
        assert int(asked[variable].rpartition(":")[2]) in exposed


def test_the_service_of_github_actions_serves_what_its_job_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yaml = pytest.importorskip("yaml")
    page = FOLDER.parent / "docs" / "guides" / "server.md"
    if not page.exists():
        pytest.skip("an installed package has no docs folder")
    (block,) = re.findall(r"```yaml\n(jobs:.*?)```", page.read_text(encoding="utf-8"), re.S)
    job = yaml.safe_load(block)["jobs"]["test"]
    service, asked = job["services"]["fakes"], job["env"]
    for name, value in service["env"].items():
        assert name.removeprefix(VARIABLE) in OPTIONS
        monkeypatch.setenv(name, value)
    options = read_options(make_parser().parse_args(["serve"]))
    assert options.forward == {"https://app.example": "http://host.docker.internal:3000"}
    assert "--add-host host.docker.internal:" in service["options"]
    kv, queue = options.services["kv"], options.services["queue"]
    assert asked["UPSTASH_REDIS_REST_TOKEN"] == kv["token"]
    assert asked["QSTASH_TOKEN"] == queue["token"]
    assert asked["PYTEST_FAKECLOUD_TOKEN"] == options.control_token
    assert asked["REDIS_URL"] == f"redis://default:{kv['database_password']}@127.0.0.1:6379"
    exposed = dict(instructions())["EXPOSE"].split()
    published = {port.partition(":")[0] for port in service["ports"]}
    assert published <= {*exposed}
    urls = [value for name, value in asked.items() if name.endswith("_URL")]
    assert {url.rpartition(":")[2] for url in urls} == published
