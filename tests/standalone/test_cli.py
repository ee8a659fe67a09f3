"""The command: options, summary, run, exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis
import urllib3

from pytest_fakecloud import cli

from .conftest import STARTS_WITHIN, Command, Done, Serve, fetch

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "pytest_fakecloud"]


def test_services_ports_and_tokens_are_chosen(serve: Serve) -> None:
    server = serve("kv_server", "queue", "--kv-token", "my-token", "--seed", "5")
    assert [fake["name"] for fake in server.summary["fakes"]] == ["kv_server", "queue"]
    kv = server.summary["fakes"][0]
    assert kv["headers"] == {"Authorization": "Bearer my-token"}
    assert server.summary["seed"] == "5"
    assert server.summary["env"]["UPSTASH_REDIS_REST_URL"] == kv["url"]
    assert server.summary["env"]["PYTEST_FAKECLOUD_URL"] == server.url


def test_the_journal_is_bounded_in_bytes(serve: Serve) -> None:
    server = serve("kv", "--journal-bytes", "100000")
    kv = server.summary["fakes"][0]
    for number in range(5):
        answer = fetch(
            "POST", f"{kv['url']}/set/k{number}", body="v" * 50_000, headers=kv["headers"]
        )
        assert answer.status == 200
    cut = [call.get("cut", {}).get("request_body") for call in server.call(None, "journal.calls")]
    assert cut == [50_000, 50_000, 50_000, 50_000, None]
    asked = {"object": "kv_server", "name": "assert_not_called", "kwargs": {"request_body": "x"}}
    assert "cannot tell the request_body" in server.ask("POST", "/call", asked)[1]["raise"]["text"]


def test_options_come_from_flag_then_environment_then_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "fakes.toml"
    file.write_text(
        'services = ["broker"]\nseed = "file"\nclock = "frozen"\n'
        "[broker]\ntopics = { orders = 3 }\n",
        encoding="utf-8",
    )
    server = serve("--config", str(file), "--seed", "flag", PYTEST_FAKECLOUD_SEED="environment")
    assert server.summary["seed"] == "flag"
    assert [fake["name"] for fake in server.summary["fakes"]] == ["broker"]
    assert server.ask("GET", "/fakes/broker/view")[1]["topics"][0]["name"] == "orders"
    assert server.ask("GET", "/clock")[1]["mode"] == "frozen"
    other = serve("--config", str(file), PYTEST_FAKECLOUD_SEED="environment")
    assert other.summary["seed"] == "environment"


@pytest.mark.parametrize("place", ["option", "variable", "file"])
def test_a_database_without_a_password(serve: Serve, tmp_path: Path, place: str) -> None:
    file = tmp_path / "fakes.toml"
    table = '[kv]\ndialect = "redis"\ndatabase_password = ""\n'
    file.write_text(table if place == "file" else "", encoding="utf-8")
    words = ["dialect=redis", "database_password="]
    options = [f"--kv={word}" for word in words] if place == "option" else []
    environment = {"PYTEST_FAKECLOUD_KV": " ".join(words)} if place == "variable" else {}
    server = serve("kv", "--config", str(file), *options, **environment)
    url = server.summary["env"]["REDIS_URL"]
    assert "@" not in url
    with redis.Redis.from_url(url) as client:
        assert client.ping()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully_and_soon(serve: Serve, number: signal.Signals) -> None:
    server = serve("broker", "--broker", 'topics={"orders": 1}')
    broker = server.summary["fakes"][0]
    pool = urllib3.PoolManager(retries=False)
    pool.request("GET", f"{broker['url']}/topics", headers=broker["headers"])
    server.process.send_signal(number)
    assert server.process.wait(10) == 0
    pool.clear()


STOPPED = """
import contextlib, gc, io, signal, sys, threading
from pytest_fakecloud import cli
from pytest_fakecloud.standalone import serving

assert not {"numpy", "requests", "urllib3"} & sys.modules.keys()
frozen = gc.get_freeze_count()  # Python 3.12 freezes objects of its own
assert cli.main(["run", "--", sys.executable, "-Sc", ""]) == 0
print("pytest" in sys.modules)
assert gc.get_freeze_count() == frozen
serving.NAP_SECONDS = 0.001

class Out(io.StringIO):
    def write(self, text):
        global lines
        if lines is not None:  # a second signal would end the process
            return super().write(text)
        lines = 0
        sys.settrace(traced)
        frame = sys._getframe()
        while frame := frame.f_back:
            frame.f_trace = traced
        return super().write(text)

def traced(frame, event, argument):
    global lines
    if event == "line" and lines is not None:
        lines += 1
        if lines == at:
            signal.raise_signal(signal.SIGTERM)
    return traced

for at in range(1, 41):
    lines = None
    with contextlib.redirect_stdout(Out()):
        try:
            code = cli.main(["serve", "kv", "--random"])
        finally:
            sys.settrace(None)
    print(at, code, flush=True)
print(gc.get_freeze_count() > 10_000)
"""


@pytest.fixture(scope="module")
def stopped() -> list[str]:
    """Return the output of a process that runs the command many times."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"it hangs after {error.stdout!r}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pytest_is_not_imported(stopped: list[str]) -> None:
    assert stopped[0] == "False"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_a_signal_stops_it_whenever_it_comes(stopped: list[str]) -> None:
    # A handler that acquires the lock that the main thread holds would wait forever.
    assert stopped[1:-1] == [f"{at} 0" for at in range(1, 41)]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_the_end_looks_for_no_garbage_among_the_data(stopped: list[str]) -> None:
    # With all services under load, a garbage collection alone took more than two seconds.
    assert stopped[-1] == "True"


TOKEN = "$(echo owned)'\""


@pytest.fixture(scope="module")
def shown() -> Iterator[str]:
    """Yield the summary that a server prints, while the server runs."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "kv", "--random", "--control-token", TOKEN],
        stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    # A server that never gets ready must end the test, not hang it.
    timer = threading.Timer(STARTS_WITHIN, process.kill)
    timer.start()
    lines = []
    with process:
        assert process.stdout is not None
        while not lines or "Ctrl+C" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        timer.cancel()
        yield "".join(lines)
        process.kill()


def test_the_summary_can_be_pasted(shown: str) -> None:
    lines = shown.splitlines()
    assert lines[0].startswith("pytest-fakecloud is ready")
    assert len(lines) <= 10
    assert "redis://default:" in lines[2]
    assert "console" in lines[3]


@pytest.mark.skipif(os.name == "nt", reason="wants a POSIX shell")
def test_the_command_of_the_summary_sets_the_environment(shown: str) -> None:
    """The token has characters that a shell would expand."""
    (command,) = (line for line in shown.splitlines() if line.startswith("Next: eval"))
    script = (
        command.removeprefix("Next: ")
        .partition(" in the shell")[0]
        .replace("pytest-fakecloud", " ".join(map(shlex.quote, COMMAND)))
    )
    variables = "$PYTEST_FAKECLOUD_TOKEN $REDIS_URL"
    pasted = subprocess.run(
        ["sh", "-c", f'{script}; printf %s "{variables}"'],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    token, _, database = pasted.stdout.rpartition(" ")
    assert token == TOKEN
    assert database in shown


def test_run_gives_a_command_the_fakes_and_its_exit_code(tmp_path: Path, command: Command) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import http.client, os, sys\n"
        "place = os.environ['UPSTASH_REDIS_REST_URL'].partition('//')[2]\n"
        "connection = http.client.HTTPConnection(place, timeout=10)\n"
        "connection.request('GET', '/set/a/1',\n"
        "    headers={'Authorization': 'Bearer ' + os.environ['UPSTASH_REDIS_REST_TOKEN']})\n"
        "print(connection.getresponse().read().decode())\n"
        "sys.exit(int(sys.argv[1]))\n",
        encoding="utf-8",
    )
    journal = tmp_path / "out" / "journal.har"
    arguments = ["run", "--services", "kv", "--journal", str(journal), "--"]
    done = command(*arguments, sys.executable, str(program), "0")
    assert (done.returncode, done.stdout.strip()) == (0, '{"result":"OK"}')
    entries = json.loads(journal.read_text(encoding="utf-8"))["log"]["entries"]
    assert entries[0]["request"]["url"].endswith("/set/a/1")
    failed = subprocess.run(
        [*COMMAND, *arguments, sys.executable, str(program), "7"],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert failed.returncode == 7
    assert "--> kv_server" in failed.stderr


IN_CLOUDS = """
import os, sys
from pytest_fakecloud.standalone.commands import ControlClient
from upstash_redis import Redis

place = os.environ["PYTEST_FAKECLOUD_URL"], os.environ["PYTEST_FAKECLOUD_TOKEN"]
with ControlClient(*place) as server:
    for name in ("first", "second", "third", "fourth"):
        cloud = server.ask("POST", "/clouds", {})
        env = cloud["env"]
        redis = Redis(env["UPSTASH_REDIS_REST_URL"], env["UPSTASH_REDIS_REST_TOKEN"])
        redis.set(name, "1")
        if name in sys.argv[1:]:
            server.ask("POST", f"/clouds/{cloud['id']}/failed", {"test": f"the {name} test"})
            with ControlClient(env["PYTEST_FAKECLOUD_URL"], env["PYTEST_FAKECLOUD_TOKEN"]) as own:
                own.ask("POST", "/begin", {})
            redis.get("of the next test")
        server.ask("DELETE", f"/clouds/{cloud['id']}")
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("failed", "reported"),
    [(["second"], ["second"]), ([], ["second", "third", "fourth"])],
    ids=["marked", "not marked"],
)
def test_run_tells_what_happened_in_isolated_clouds(
    tmp_path: Path, failed: list[str], reported: list[str]
) -> None:
    program, journal = tmp_path / "program.py", tmp_path / "journal.har"
    program.write_text(IN_CLOUDS, encoding="utf-8")
    words = ["run", "--services", "kv", "--journal", str(journal), "--", sys.executable]
    done = subprocess.run(
        [*COMMAND, *words, str(program), *failed],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert re.findall(r"SET (\w+)", done.stderr) == reported
    assert re.findall(r"^the (\w+) test:$", done.stderr, re.MULTILINE) == failed
    assert "of the next test" not in done.stderr
    assert "no client has made a call" not in done.stderr
    entries = json.loads(journal.read_text(encoding="utf-8"))["log"]["entries"]
    names = ["first", "second", "third", "fourth"]
    assert [name for entry in entries for name in names if name in str(entry["request"])] == names


def test_run_prints_the_failed_tests_and_writes_their_pages(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "pages"
    program.write_text(IN_CLOUDS, encoding="utf-8")
    names = ["first", "second", "third", "fourth"]
    done = subprocess.run(
        [*COMMAND, "run", "--services", "kv", "--report", str(folder), "--", sys.executable,
         str(program), *names],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[0] == " fakecloud: 4 failed tests ".center(100, "-")
    assert "the first test: last call: SET first 1 <-- OK" in lines
    assert re.findall(r"^the (\w+) test:$", done.stderr, re.MULTILINE) == names[1:]
    pages = [Path(line.partition(" ")[2]) for line in lines if line.startswith("timeline: ")]
    tests = [json.loads(page.with_suffix(".json").read_text("utf-8"))["test"] for page in pages]
    assert tests == [f"the {name} test" for name in names[1:]]
    assert lines[-1] == f"pages of the failed tests: {folder}"
    assert len([*folder.glob("*.html")]) == len(names) + 1
    assert "4 failing tests" in (folder / "index.html").read_text("utf-8")


PLAIN_CLIENT = """
import http.client, json, os, sys
from urllib.parse import urlsplit

def ask(env, method, path, body=None):
    connection = http.client.HTTPConnection(urlsplit(env["PYTEST_FAKECLOUD_URL"]).netloc, timeout=10)
    headers = {"Authorization": "Bearer " + env["PYTEST_FAKECLOUD_TOKEN"]}
    connection.request(method, "/__control__" + path, json.dumps(body), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer

cloud = ask(os.environ, "POST", "/clouds", {"now": "2026-01-01T00:00:00Z"})
connection = http.client.HTTPConnection(
    urlsplit(cloud["env"]["UPSTASH_REDIS_REST_URL"]).netloc, timeout=10
)
headers = {"Authorization": "Bearer " + cloud["env"]["UPSTASH_REDIS_REST_TOKEN"]}
for line in ("set/session:ada/1/EX/3600", "set/session:bob/1", "exists/session:ada"):
    connection.request("GET", "/" + line, headers=headers)
    found = connection.getresponse().read()
ask(cloud["env"], "POST", "/clock", {"action": "advance", "by": "59m"})
print("--- FAIL: TestASessionExpires")
ask(os.environ, "POST", "/clouds/" + cloud["id"] + "/failed",
    {"test": "TestASessionExpires", "read": ["session:ada"]})
ask(os.environ, "DELETE", "/clouds/" + cloud["id"])
sys.exit(3)
"""


def test_run_prints_the_report_of_a_plain_http_client_below_its_output(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PLAIN_CLIENT, encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "run", "--services", "kv", "--", sys.executable, str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False, env={**os.environ, "COLUMNS": "90"},
    )  # fmt: skip
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[:9] == [
        "--- FAIL: TestASessionExpires",
        " fakecloud: 1 failed test ".center(90, "-"),
        "",
        "TestASessionExpires:",
        "The failing statement compared session:ada; last written by SET session:ada 1 EX 3600",
        "  <-- OK",
        "> 00:00:00 --> kv_server SET session:ada 1 EX 3600 <-- OK <== read",
        "  SET session:bob 1 <-- OK",
        "> EXISTS session:ada <-- 1",
    ]
    assert "clock frozen at 2026-01-01 00:59:00Z" in done.stdout
    assert "pages" not in done.stdout


MISUSE = {
    "serve tape": "'tape' is not a service. Known services: kv, vector, broker, queue",
    "run --": "run needs a command",
    "serve --config /no/such/file.toml": "cannot read",
    "serve kv --kv dialect": "'dialect' is not a SETTING=VALUE",
    "serve kv --kv colour=red": "'colour' is not a setting of kv_server",
    "serve --now yesterday": "'yesterday' is not a time",
    "serve kv --kv-port 99999": "--kv-port=99999 must be a port number: 0 (any free) to 65535",
    "serve kv --control-port -1": "--control-port=-1 must be a port number",
    "serve kv --kv port=70000": "the setting port of kv=70000 must be a port",
    "serve kv --journal-entries -5": "--journal-entries=-5 must be a whole number of at least 0",
    "serve kv --journal-bytes -5": "--journal-bytes=-5 must be a whole number",
    "serve kv --kv-token ''": "--kv-token='' must be a string of printable ASCII characters; leave",
    "run --services , -- true": "--services=',' is empty",
    "serve kv --queue-port 5": "--queue-port is for queue, which is not among",
    "serve kv --broker topics={}": "--broker is for broker, which is not",
    "run --services kv --queue-token x -- true": "--queue-token is",
    "serve kv --kv =5": "--kv: '=5' is not a SETTING=VALUE",
    "serve kv --kv-token 'a\nb'": "--kv-token='a\\nb' must be a string of printable ASCII",
    "serve kv --kv token=☃": "the setting token of kv=",
    "serve kv --control-token ☃": "must be a string of printable ASCII",
    "serve kv vector --kv name=x --vector name=x": "two fakes have the name 'x'",
    "serve kv vector --kv name=vector_index": "have the name 'vector_index'",
    "run -- ''": "run needs a command",
    "serve kv --host 0.0.0.0": "without a token of its own: pass --kv-token",
    "serve kv --kv database_password=": "(no password) applies only to a stock server",
    "serve kv --host 0.0.0.0 --random --kv dialect=redis --kv database_password=": (
        "a server without a password would be reachable from other machines at 0.0.0.0"
    ),
    "serve queue --queue host=0.0.0.0": "pass --queue-token TOKEN, or --random",
    "run --report /dev/null/pages -- true": "cannot write reports to /dev/null/pages",
    "run --journal . -- no-such-command": "cannot write the journal to .",
    "serve kv --random --forward https://a=http://127.0.0.1:1": "--forward is for the queue",
    "serve --random --forward https://a": "is not URL=TARGET",
    "serve --random --forward https://a=b": "is not a target",
    "serve --random --forward https://a=http://b --forward https://a=http://c": (
        "https://a is given twice"
    ),
    "serve --random --forward a=http://127.0.0.1:1": "'a' is not a destination",
    "serve kv --kv port=1 --kv-port 2": "--kv port=… and --kv-port are the same",
    "serve kv --kv token=a --kv-token b": "--kv token=… and --kv-token are the same",
    "serve kv --kv daily_limit=1 --kv daily_limit=2": "--kv: daily_limit is given twice",
    "serve --random --load none.json": "cannot read 'none.json'",
    "serve --random --log-format xml": "invalid choice",
}
"""Command lines, each with a part of the message of its error."""


def check_refusal(done: Done, text: str, code: int = 2) -> None:
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", MISUSE)
def test_misuse_has_a_reason(command: Command, line: str) -> None:
    check_refusal(command(*shlex.split(line)), MISUSE[line])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("run -- no-such-command-at-all", "cannot run no-such-command-at-all"),
        ("run --services kv kv -- true", "--services chooses the fakes"),
    ],
)
def test_a_command_that_does_not_exist_is_said(command: Command, line: str, text: str) -> None:
    check_refusal(command(*shlex.split(line)), text, 127)


@pytest.mark.skipif(os.name == "nt", reason="command lines are shorter there")
def test_a_setting_may_not_be_nested_too_deeply(command: Command) -> None:
    # Python 3.14 can parse 60,000 levels.
    done = command("serve", "kv", "--kv", "x=" + "[" * 120_000)
    check_refusal(done, "--kv: the value of x is nested too")


def test_a_port_that_is_taken_is_said(command: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = command("serve", "kv", "--kv-port", str(taken.getsockname()[1]))
    check_refusal(done, "cannot start", 3)


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("KV_PORT", "many", "must be a port number: 0 (any free) to 65535"),
        ("KV_PORT", "²", "must be a port number"),
        ("KV_PORT", "99999", "must be a port number"),
        ("JOURNAL_ENTRIES", "many", "must be a whole number of at least 0"),
        ("TLS", "maybe", "is not a boolean"),
        ("SERVICES", " , ", "is empty"),
        ("KV_PORT", "9" * 5000, "must be a port number"),
        ("CONTROL_TOKEN", "☃", "must be a string of printable ASCII"),
        ("JSON", "maybe", "is not a boolean"),
    ],
)
def test_a_wrong_variable_is_said(command: Command, variable: str, value: str, text: str) -> None:
    done = command("serve", **{f"PYTEST_FAKECLOUD_{variable}": value})
    check_refusal(done, text)
    assert f"PYTEST_FAKECLOUD_{variable}=" in done.stderr


@pytest.mark.parametrize(
    ("line", "variable", "owner"),
    [("serve kv", "JOURNAL", "run"), ("run -- true", "JSON", "serve")],
)
def test_an_option_of_another_command_is_said(
    command: Command, line: str, variable: str, owner: str, tmp_path: Path
) -> None:
    done = command(*shlex.split(line), **{f"PYTEST_FAKECLOUD_{variable}": "1"})
    check_refusal(
        done, f"PYTEST_FAKECLOUD_{variable} is an option of pytest-fakecloud {owner} only"
    )
    file = tmp_path / "fakes.toml"
    file.write_text(f"{variable.lower()} = true", encoding="utf-8")
    done = command(line.split()[0], "--config", str(file), *shlex.split(line)[1:])
    check_refusal(
        done, f"fakes.toml: {variable.lower()} is an option of pytest-fakecloud {owner} only"
    )


def test_a_value_with_spaces_in_a_variable_is_said(command: Command) -> None:
    done = command("serve", "broker", PYTEST_FAKECLOUD_BROKER='topics={"a": 1}')
    text = "PYTEST_FAKECLOUD_BROKER: '1}' is not a SETTING=VALUE (a value in a variable"
    check_refusal(done, text)


def test_options_of_services_that_are_not_started_may_stand_in_environment_and_file(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "fakes.toml"
    content = 'json = true\n[queue]\nport = 1\n[kv_server]\nname = "store"\n'
    file.write_text(content, encoding="utf-8")
    server = serve("kv", "--config", str(file), PYTEST_FAKECLOUD_QUEUE_TOKEN="x")
    assert [fake["name"] for fake in server.summary["fakes"]] == ["store"]


def test_a_fake_has_one_table(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "fakes.toml"
    file.write_text("[kv]\n[kv_server]\n", encoding="utf-8")
    done = command("serve", "--config", str(file))
    check_refusal(done, "kv_server and kv name the same fake: keep one of the tables")


def test_a_token_of_any_signs_gets_in(serve: Serve) -> None:
    token = "a b&c#d+e$(f)'g"
    server = serve("kv", "--control-token", token)
    assert server.summary["env"]["PYTEST_FAKECLOUD_TOKEN"] == token
    assert token not in unquote(server.summary["console"])
    assert server.ask("GET", "/state")[0] == 200


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps open files from being replaced")
@pytest.mark.parametrize(("code", "expected"), [("0", 3), ("5", 5)])
def test_a_journal_that_cannot_be_written_in_the_end_is_said(
    tmp_path: Path, command: Command, code: str, expected: int
) -> None:
    journal = tmp_path / "journal.har"
    program = f"import os, sys; os.remove({str(journal)!r}); os.mkdir({str(journal)!r})"
    done = command(
        "run", "--services", "kv", "--journal", str(journal), "--",
        sys.executable, "-Sc", f"{program}; sys.exit({code})",
    )  # fmt: skip
    assert done.returncode == expected
    assert f"cannot write the journal to {journal}" in done.stderr
    assert "cannot start" not in done.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("services = 5", "services=5 is not a list of names"),
        ("services = [5]", "services=[5] is not a list of names"),
        ("kv = 5", "kv must be a table"),
        ('control_port = "many"', "control_port='many' must be a port number"),
        ("control_port = true", "control_port=True must be a port number"),
        ('[kv]\nport = "x"', "the setting port of kv='x' must be a port number"),
        ("host = 5", "host=5 must be a string"),
        ("seed = [1]", "seed=[1] must be an integer or a string"),
        ('tls = "maybe"', "tls='maybe' is not a boolean"),
        ('log_format = "xml"', "log_format='xml' must be 'text' or 'json'"),
        ("colour = 1", "'colour' is not"),
        ("colour =", "cannot be used: Invalid value"),
    ],
)
def test_a_wrong_file_is_said(tmp_path: Path, command: Command, content: str, text: str) -> None:
    file = tmp_path / "fakes.toml"
    file.write_text(content, encoding="utf-8")
    done = command("serve", "--config", str(file))
    check_refusal(done, text)
    assert str(file) in done.stderr or "setting port" in text


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (["--host", "127.0.0.1"], []),
        (["--host", "127.0.0.2"], []),
        (["--host", "0.0.0.0"], ["0.0.0.0"]),
        (["--kv", "host=0.0.0.0"], ["0.0.0.0"]),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_every_address_others_can_reach_is_warned_of(
    command: Command, arguments: list[str], warned: list[str]
) -> None:
    done = command("run", "--services", "kv", *arguments, "--", sys.executable, "-Sc", "")
    assert done.returncode == 0
    assert [line.split()[2] for line in done.stderr.splitlines() if "warning" in line] == warned


INTERRUPTED = """
import signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
print("ready", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.3)
print("interrupted", len(seen), flush=True)
sys.exit(4)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_ctrl_c_reaches_the_command_once() -> None:
    import pty

    try:
        child, terminal = pty.fork()
    except OSError as error:  # This can happen in a container without /dev/pts.
        pytest.skip(f"no pseudo-terminal to be had: {error}")
    if child == 0:
        words = [*COMMAND, "run", "--services", "kv", "--", sys.executable, "-c", INTERRUPTED]
        os.execv(sys.executable, words)
    output = b""
    with open(terminal, "r+b", buffering=0) as keys:
        while b"ready" not in output:
            output += keys.read(1000)
        keys.write(b"\x03")
        try:
            while more := keys.read(1000):
                output += more
        except OSError:
            pass  # Linux reports a closed other end with this error.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert b"interrupted 1" in output


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_a_signal_to_run_alone_reaches_the_command() -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", "--services", "kv", "--", sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"interrupted 1\n"
    assert process.wait(20) == 4


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_a_signal_reaches_a_command_that_is_just_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return popen(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    missed: list[int] = []

    def miss(number: int, frame: object) -> None:
        missed.append(number)

    original = signal.signal(signal.SIGTERM, miss)
    try:
        code = cli.main(["run", "--services", "kv", "--", sys.executable, "-Sc", "input()"])
        assert (code, missed, signal.getsignal(signal.SIGTERM)) == (128 + 15, [], miss)
    finally:
        signal.signal(signal.SIGTERM, original)


def test_the_version_is_said(command: Command) -> None:
    done = command("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("pytest-fakecloud ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_the_commands_and_their_options(command: Command, shell: str) -> None:
    pytest.importorskip("shtab")
    done = command("completion", shell)
    assert done.returncode == 0
    assert "advance" in done.stdout
    assert "kv-token" in done.stdout
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=done.stdout, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_completions_say_what_they_need(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    check_refusal(command("completion", "bash"), "pip install 'pytest-fakecloud[completion]'")


@pytest.mark.parametrize("name", ["serve", "run"])
def test_the_help_lists_the_settings_of_each_service(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0
    words = done.stdout.partition("settings of each service")[2].split()
    settings = {"--kv", "database_port,", "--vector", "--broker", "topics,", "--queue", "token,"}
    assert settings <= set(words)
