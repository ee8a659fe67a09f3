"""Commands against a running server, as a shell sees them."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fakecloud import Cloud, ContractError, cli
from pytest_fakecloud.standalone import commands
from pytest_fakecloud.standalone.commands import write_dotenv

from .conftest import Server, fetch
from .test_client import other_server

pytestmark = pytest.mark.slow

Command = Callable[..., str]


@pytest.fixture
def command(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command against the server; its exit code is looked at, its output returned."""
    monkeypatch.setenv("PYTEST_FAKECLOUD_URL", server.url)
    monkeypatch.setenv("PYTEST_FAKECLOUD_TOKEN", server.token)

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert cli.main(words) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def test_the_clock(command: Command) -> None:
    assert command("advance", "24h") == "2026-01-02T00:00:00+00:00, frozen\n"
    assert command("move-to", "2026-02-01T00:00:00Z") == "2026-02-01T00:00:00+00:00, frozen\n"
    assert "running" in command("resume")
    assert "frozen" in command("freeze")
    assert json.loads(command("advance", "1h", "--json"))["mode"] == "frozen"
    assert "time cannot go back" in command("move-to", "2020-01-01T00:00:00Z", code=1)
    assert "'soon' is not a duration" in command("advance", "soon", code=1)


def test_a_long_advance_is_summarised(command: Command) -> None:
    for _ in range(12):
        command("publish", "https://app.test/hook", "--delay", "1h", "--retries", "0")
    assert command("advance", "2h").splitlines()[11:13] == [
        "  ... and 2 more, all of them with --json:",
        "  12 x https://app.test/hook",
    ]


def test_the_environment(command: Command, server: Server, tmp_path: Path) -> None:
    variables = json.loads(command("env", "--json"))
    assert variables == server.summary["env"]
    assert {"REDIS_URL", "KV_URL", "PYTEST_FAKECLOUD_URL"} <= variables.keys()
    assert f"export PYTEST_FAKECLOUD_URL={server.url}\n" in command("env")
    file = tmp_path / ".env"
    file.write_text("# mine\nexport REDIS_URL=old\nOTHER=1\nREDIS_URL=older\n", encoding="utf-8")
    assert command("env", "--dotenv", str(file)) == ""
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["# mine", f"export REDIS_URL={variables['REDIS_URL']}", "OTHER=1"]
    assert len(lines) == 2 + len(variables)
    file.write_bytes(b"\xff")
    assert "is not UTF-8" in command("env", "--dotenv", str(file), code=1)


def test_publish_and_next(command: Command, server: Server) -> None:
    command(
        "publish", "https://app.test/hook", "--body-json", '{"n": 1}', "--delay", "1h",
        "--header", "X-One: two", "--retries", "0",
    )  # fmt: skip
    state = json.loads(command("state", "--json"))
    assert state["clock"]["next_due"] == "2026-01-01T01:00:00+00:00"
    assert "2026-01-01T01:00:00+00:00 https://app.test/hook" in command("next")
    assert [attempt["url"] for attempt in server.call("queue", "attempts")] == [
        "https://app.test/hook"
    ]
    (letter,) = server.call("queue", "dead_letters")
    assert json.loads(letter["message"]["body"]) == {"n": 1}
    shown = command("state")
    assert "[unstubbed] no handler for POST https://app.test/hook" in shown
    assert "serve --forward ORIGIN=" in shown
    assert not re.search(r"\w\.\w+\(", shown), "advice in Python"
    bare = json.loads(command("publish", "https://app.test/bare", "--retries", "0", "--json"))
    assert bare["url"] == "https://app.test/bare"
    assert "cannot be combined" in command(
        "publish", "x", "--body", "a", "--body-json", "1", code=1
    )
    assert "is not a header" in command("publish", "x", "--header", "a", code=1)
    assert "is not JSON" in command("publish", "x", "--body-json", "{", code=1)


def test_faults(command: Command, server: Server) -> None:
    text = command("fault", "kv", "respond", "503", "--times", "2", "--where", "command=GET")
    assert text == ("<respond 503 [times=2, command='GET'], 0 hits, set over the control API>\n")
    kv = server.fake("kv_server")
    assert fetch("GET", f"{kv['url']}/get/k", headers=kv["headers"]).status == 503
    assert command("faults", "kv_server").startswith("kv_server: <respond 503")
    command("faults", "--clear")
    assert command("faults") == "no faults\n"
    assert "did you mean 'delay'" in command("fault", "kv", "dely", "1", code=1)
    assert "'brokr' is not a fake; did you mean 'broker'" in command(
        "fault", "brokr", "drop", code=1
    )
    assert "is not FIELD=VALUE" in command("fault", "kv", "drop", "--where", "GET", code=1)


def test_data(command: Command, tmp_path: Path, server: Server) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"kv": {"values": {"k": "v"}}, "broker": {"orders": ["a"]}}', encoding="utf-8")
    assert command("load", str(file)) == f"loaded {file}: 1 of kv, 1 of broker\n"
    assert command("snapshot", "with k") == "with k\n"
    command("reset", "kv")
    assert not json.dumps(server.ask("GET", "/fakes/kv_server/view")[1]).count('"k"')
    command("restore", "with k")
    assert server.call("kv_server", "value", "k") == "v"
    assert "'with j' is not a snapshot; did you mean 'with k'" in command(
        "restore", "with j", code=1
    )
    command("reset")
    file.write_text('{"kf": 1}', encoding="utf-8")
    assert "'kf' is not a field" in command("load", str(file), code=1)


def test_replay(command: Command, tmp_path: Path, server: Server) -> None:
    from pytest_fakecloud.recordings.archives import write

    with Cloud(seed=1, clock="frozen") as other:
        store = other.kv_server()
        store.client().set("k", "v")
        other.clock.advance("1h")
        store.client().get("k")
        write(other, tmp_path / "session.har")
    for options, now in (((), "00:00:00"), (("--move-clock",), "01:00:00")):
        said = command("replay", str(tmp_path / "session.har"), *options)
        assert said == "all responses are the same\n"
        assert f"2026-01-01T{now}" in command("state")
    command("reset")
    command("fault", "kv", "respond", "503", "--times", "2", "--where", "command=GET")
    assert cli.main(["replay", str(tmp_path / "session.har"), "--into", "kv"]) == 1


def test_health_needs_no_token(
    command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_FAKECLOUD_TOKEN")
    assert command("health") == "ready\n"
    assert command("health", "--live") == "live\n"
    assert json.loads(command("health", "--json")) == {"ready": True}
    assert "is not ready" in command("health", "--url", "http://127.0.0.1:1", code=1)


@pytest.mark.parametrize(
    "answer", [b"[]", b"null", b"<html>", b"{}", b'{"live":true}', b"[" * 9999]
)
def test_health_of_another_kind_of_server(command: Command, answer: bytes) -> None:
    with other_server(lambda _: answer) as url:
        output = command("health", "--url", url, code=1)
    assert f"{url} is not a stand-alone server: its response to GET" in output
    assert "instead of a JSON object with 'ready'. Pass the URL that" in output
    assert len(output) < 400


def test_which_server(command: Command, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    assert "no stand-alone server responds" in command(
        "state", "--url", "http://127.0.0.1:1", code=1
    )
    assert "token" in command("state", "--token", "wrong", code=1)
    assert "must not contain the control token" in command(
        "state", "--url", f"{server.url}/?token={server.token}", code=1
    )
    assert command("console", "--print").startswith(f"{server.url}/#code=")
    monkeypatch.delenv("PYTEST_FAKECLOUD_URL")
    monkeypatch.delenv("PYTEST_FAKECLOUD_TOKEN")
    monkeypatch.setattr(commands, "CONTROL_URL", server.url)
    monkeypatch.setattr(commands, "control_token", lambda: server.token)
    assert "clock " in command("state")
    assert "clock " in command("state", "--url", server.url.removeprefix("http://"))


# -- .env files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["plain", "two words", "$HOME `id` \\n", "it's", 'say "x"', "", "#"]
)
def test_a_value_is_read_as_it_was_written(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    write_dotenv(file, {"VALUE": value})
    command = f'. {file}; printf %s "$VALUE"'
    read = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert read.stdout == value


@pytest.mark.parametrize("value", ["it's $1", "'\"", "' \\", "two\nlines", "C:\\", "a\\\\b"])
def test_a_value_without_a_portable_form_is_rejected(tmp_path: Path, value: str) -> None:
    with pytest.raises(ContractError, match="VALUE cannot be written"):
        write_dotenv(tmp_path / ".env", {"VALUE": value})


FOREIGN = [
    "# a comment\n", "\n", "  SPACES = x \n", "A=1\u2028B\n", "A=form\ffeed\n", "A=next\u0085line\n",
    "A=\"first\nVALUE=inside\nlast\"\n", "A='it is\nVALUE=inside'\n", "A=`x\nVALUE=inside`\n",
    'A="a \\" quote\nVALUE=inside"\n', "A='never closed\n", "A=1\r\n", "export A=1", "NOVALUE=\n", "=\n",
]  # fmt: skip
"""Lines that set other variables, the last without an end."""


@pytest.mark.parametrize("line", FOREIGN)
def test_every_byte_of_other_lines_stays(tmp_path: Path, line: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(line.encode())
    write_dotenv(file, {"VALUE": "new"})
    added = file.read_bytes().removeprefix(line.encode())
    assert added.strip() == b"VALUE=new"
    write_dotenv(file, {"VALUE": "newer"})
    assert file.read_bytes() == line.encode() + added.replace(b"new", b"newer")


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("export VALUE=old\n", "export VALUE=new\n"),
        ("A=1\r\nVALUE=old\r\nB=2\r\n", "A=1\r\nVALUE=new\r\nB=2\r\n"),
        ("\ufeffVALUE=old\n", "\ufeffVALUE=new\n"),
        ("VALUE='two\nlines' # why\nB=2\n", "VALUE=new\nB=2\n"),
        ("VALUE=1\nB=2\nVALUE=3\n", "VALUE=new\nB=2\n"),
        ("VALUE=old", "VALUE=new\n"),
    ],
)
def test_a_variable_is_replaced_in_its_line(tmp_path: Path, content: str, written: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(content.encode())
    write_dotenv(file, {"VALUE": "new"})
    assert file.read_bytes() == written.encode()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / ".env"
    file.write_text("OTHER=1\n", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(ContractError, match="No space left on device"):
        write_dotenv(file, {"VALUE": "new"})
    assert file.read_text(encoding="utf-8") == "OTHER=1\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "shared.env", tmp_path / ".env"
    link.symlink_to(file)
    write_dotenv(link, {"VALUE": "new"})
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "VALUE=new\n"
