"""Test servers with several fakes of a service: names, variables, settings, data, copied tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from upstash_redis import Redis
from upstash_redis.errors import UpstashError
from upstash_vector import Index
from upstash_vector.errors import UpstashError as VectorError

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.cloud.services import by_part, variable_prefix
from pytest_fakecloud.http.ports import Listeners, close_listeners
from pytest_fakecloud.standalone.addresses import Hosts
from pytest_fakecloud.standalone.copied_tests import in_go, in_pytest, in_vitest
from pytest_fakecloud.standalone.copied_tests.plan import (
    AnyTest,
    CommandsTest,
    DeliveryTest,
    HttpRequest,
    Known,
    RequestTest,
    Step,
    Surroundings,
    TestedFake,
)
from pytest_fakecloud.standalone.saving import encoded_state, saved_state
from pytest_fakecloud.standalone.serving import Log, Options, with_defaults
from pytest_fakecloud.standalone.state_file import checked_state, load_state

from ..clients.node import need
from .conftest import Command, Serve, Server, message

ROOT = Path(__file__).parents[2]
TWO_OF_EACH = ("kv", "kv:second", "vector", "vector:products")


def index_of(env: dict[str, str], prefix: str = "") -> Index:
    return Index(
        url=env[f"{prefix}UPSTASH_VECTOR_REST_URL"], token=env[f"{prefix}UPSTASH_VECTOR_REST_TOKEN"]
    )


def redis_of(env: dict[str, str], prefix: str = "") -> Redis:
    url, token = (env[f"{prefix}UPSTASH_REDIS_REST_{end}"] for end in ("URL", "TOKEN"))
    return Redis(url=url, token=token, rest_retries=0)


# -- the server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(serve: Serve) -> Server:
    return serve(
        *TWO_OF_EACH, "queue", "queue:us-east-1", "--vector", "dimension=2",
        "--vector", "products:dimension=3", "--kv", "second:token=own-token",
    )  # fmt: skip


@pytest.mark.slow
def test_official_clients_use_both_fakes_of_a_service(host: Server) -> None:
    env = host.summary["env"]
    first, products = index_of(env), index_of(env, "PRODUCTS_")
    first.upsert([("a", [1.0, 2.0])])
    products.upsert([("b", [1.0, 2.0, 3.0])])
    assert (first.info().dimension, products.info().dimension) == (2, 3)
    assert [item and item.id for item in first.fetch(["a", "b"])] == ["a", None]
    assert [item and item.id for item in products.fetch(["a", "b"])] == [None, "b"]
    main, second = redis_of(env), redis_of(env, "SECOND_")
    main.set("shelf", "main")
    second.set("shelf", "second")
    assert (main.get("shelf"), second.get("shelf")) == ("main", "second")
    with redis.Redis.from_url(env["SECOND_REDIS_URL"], decode_responses=True) as database:
        assert database.get("shelf") == "second"
    assert env["SECOND_UPSTASH_REDIS_REST_TOKEN"] == "own-token"
    assert env["US_EAST_1_QSTASH_URL"] != env["QSTASH_URL"]


@pytest.mark.slow
def test_the_token_of_another_fake_is_rejected(host: Server) -> None:
    env = host.summary["env"]
    crossed = Index(
        url=env["UPSTASH_VECTOR_REST_URL"], token=env["PRODUCTS_UPSTASH_VECTOR_REST_TOKEN"]
    )
    with pytest.raises(VectorError):
        crossed.info()
    with pytest.raises(UpstashError):
        Redis(
            url=env["UPSTASH_REDIS_REST_URL"],
            token=env["SECOND_UPSTASH_REDIS_REST_TOKEN"],
            rest_retries=0,
        ).get("k")


@pytest.mark.slow
def test_the_control_api_addresses_fakes_by_name(host: Server) -> None:
    names = ["kv_server", "second", "vector_index", "products", "queue", "us-east-1"]
    assert [fake["name"] for fake in host.summary["fakes"]] == names
    assert host.fake("products")["fixture"] == "vector_index"
    host.call("second", "execute", "SET", "only", "here")
    assert host.call("second", "value", "only") == "here"
    assert host.call("kv_server", "value", "only") is None
    fault = {"kind": "respond", "args": [503], "times": 1}
    assert host.ask("POST", "/fakes/second/faults", fault)[0] == 200
    counts = {fake["name"]: fake["faults"] for fake in host.ask("GET", "/state")[1]["fakes"]}
    assert (counts["kv_server"], counts["second"]) == (0, 1)
    assert host.ask("DELETE", "/fakes/second/faults")[0] == 200
    url = "https://app.example/named"
    host.ask("POST", "/fakes/us-east-1/destinations", {"url": url, "answer": 200})
    host.call("us-east-1", "load", {"messages": [{"url": url}]})
    calls = host.ask("GET", "/journal")[1]
    assert {row["peer"] for row in calls if row["kind"] == "request"} <= {*names}


@pytest.mark.slow
def test_commands_prefer_a_name_to_a_service(host: Server, command: Command) -> None:
    address = ("--url", host.url, "--token", host.token)
    done = command("fault", "products", "respond", "503", "--times", "1", *address)
    assert done.returncode == 0, done.stderr
    assert host.ask("GET", "/fakes/products/faults")[1][0]["kind"] == "respond"
    assert command("faults", "products", "--clear", *address).returncode == 0
    # "kv" is the server without a name of its own.
    host.call("kv_server", "execute", "SET", "k", "v")
    host.call("second", "execute", "SET", "k", "v")
    assert command("reset", "kv", *address).returncode == 0
    assert (host.call("kv_server", "value", "k"), host.call("second", "value", "k")) == (None, "v")


@pytest.mark.slow
def test_isolated_clouds_have_all_fakes_or_those_that_are_asked_for(host: Server) -> None:
    cloud = host.ask("POST", "/clouds", {})[1]
    index_of(cloud["env"], "PRODUCTS_").upsert([("b", [1.0, 2.0, 3.0])])
    assert index_of(cloud["env"]).info().dimension == 2
    assert host.ask("GET", "/clouds")[1][-1]["fakes"] == [
        fake["name"] for fake in host.summary["fakes"]
    ]
    kept = host.ask("POST", f"/clouds/{cloud['id']}/failed", {"test": "it fails"})[1]
    assert index_of(kept["env"], "PRODUCTS_").fetch(["b"])[0] is not None
    services: dict[str, Any] = {"vector:docs": {"dimension": 4}, "vector": {"name": "books"}}
    other = host.ask("POST", "/clouds", {"services": services})[1]
    assert index_of(other["env"], "DOCS_").info().dimension == 4
    assert other["env"]["UPSTASH_VECTOR_REST_URL"] == other["env"]["DOCS_UPSTASH_VECTOR_REST_URL"]
    assert "BOOKS_UPSTASH_VECTOR_REST_URL" in other["env"]
    for id in (cloud["id"], kept["id"], other["id"]):
        host.ask("DELETE", f"/clouds/{id}")
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"vector:a": {"name": "b"}}, "vector:a has the setting name='b' too"),
        ({"vector:a": {}, "kv:a": {}}, "two fakes have the name 'a'"),
        ({"vector:": {}}, "'vector:' has no name"),
        ({"vecto:a": {}}, "did you mean 'vector'"),
        ({"vector": {"name": 3}}, "name=3 of vector must be a non-empty string"),
    ]
    for services, error in invalid:
        assert error in message(host.ask("POST", "/clouds", {"services": services})), services


@pytest.mark.slow
def test_settings_come_from_flag_variable_and_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "fakes.toml"
    file.write_text(
        'services = ["vector:a", "vector_index:b", "vector:c"]\n'
        '["vector:a"]\ndimension = 3\n["vector_index:b"]\ndimension = 4\nsimilarity = "euclidean"\n'
        '["vector:c"]\ndimension = 5\ntoken = "from-file"\n',
        encoding="utf-8",
    )
    server = serve(
        "--config", str(file), "--vector", "c:dimension=7",
        PYTEST_FAKECLOUD_VECTOR="b:dimension=6 c:dimension=6 other:dimension=8",
    )  # fmt: skip
    env = server.summary["env"]
    infos = [index_of(env, prefix).info() for prefix in ("A_", "B_", "C_")]
    assert [info.dimension for info in infos] == [3, 6, 7]
    assert infos[1].similarity_function == "EUCLIDEAN"
    assert env["C_UPSTASH_VECTOR_REST_TOKEN"] == "from-file"
    assert env["UPSTASH_VECTOR_REST_URL"] == env["A_UPSTASH_VECTOR_REST_URL"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("vector", "--vector", "a:dimension=3"), "--vector is for vector:a, which is not among"),
        (("vector:a", "--vector", "dimension=3"), "--vector is for vector, which is not among"),
        (("vector:a", "--vector-port", "1"), "--vector-port is for vector, which is not among"),
        (("vector", "--vector", "a:dimension"), "'a:dimension' is not a SETTING=VALUE"),
        (("vector:a", "--vector", "a:port=x"), "the setting port of vector:a"),
        (("vector:a", "--vector", "a:name=b"), "vector:a has the setting name='b' too"),
        (("vector:a-b", "vector:a_b"), "vector:a-b and vector:a_b would have the same variables"),
        (("vector:2nd",), "'2nd' is not a name of a fake on the command line"),
        (("vector:",), "'vector:' has no name"),
        (("kv:x", "vector:x"), "two fakes have the name 'x'"),
        (("queue:a", "--host", "0.0.0.0", "--queue", "a:port=0"), "--queue a:token=TOKEN"),
    ],
)
def test_invalid_options(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    done = command("serve", *arguments, XDG_STATE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr


@pytest.mark.slow
def test_run_sets_the_variables_of_every_fake(command: Command, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    program = f"import json, os; json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"
    done = command("run", "--services", "kv,kv:second", "--", sys.executable, "-Sc", program)
    assert done.returncode == 0, done.stderr
    env = json.loads(seen.read_text())
    assert env["SECOND_KV_REST_API_URL"] == env["SECOND_UPSTASH_REDIS_REST_URL"]
    assert env["SECOND_REDIS_URL"] != env["REDIS_URL"]


def test_default_ports_and_credentials() -> None:
    """Each port is that of the table, unless another program of this machine has it."""
    listeners: Listeners = {}
    services = by_part(
        {
            "kv": {},
            "kv:second": {},
            "vector:products": {},
            "vector:docs": {"port": 0},
            "queue:eu": {},
        }
    )
    options = with_defaults(
        Options(services, control_token="own", control_port=0, listeners=listeners), Log()
    )
    close_listeners(listeners)
    found = options.services
    assert found["kv"]["token"] == "local-kv-token"
    assert found["kv:second"]["token"] == "local-second-token"
    assert found["kv:second"]["database_password"] == "local-second-password"
    assert found["vector:products"]["token"] == "local-products-token"
    assert found["vector:docs"] == {"name": "docs", "port": 0, "token": "local-docs-token"}
    assert found["queue:eu"]["dev_credentials"] is True
    ports = [
        (found["kv"]["port"], 7401), (found["kv"]["database_port"], 7405),
        (found["kv:second"]["port"], 7406), (found["kv:second"]["database_port"], 7407),
        (found["vector:products"]["port"], 7402), (found["queue:eu"]["port"], 7404),
    ]  # fmt: skip
    assert all(port in (0, default) for port, default in ports)
    assert options.guarded == {"kv_server", "second", "products", "docs", "eu"}


def test_public_credentials_of_a_named_fake_stay_on_this_machine(cloud: Cloud) -> None:
    from pytest_fakecloud.standalone.control.fakes import start

    settings = {"name": "second", "token": "local-second-token", "host": "0.0.0.0"}
    with pytest.raises(ContractError, match="public credentials"):
        start(cloud, Hosts("0.0.0.0"), "kv_server", settings)
    with pytest.raises(ContractError, match="name=3"):
        start(cloud, Hosts(), "kv_server", {"name": 3, "token": "local-second-token"})


# -- variables in Python ---------------------------------------------------------------------------


@pytest.fixture
def cloud() -> Any:
    with Cloud(seed=1, now="2026-01-01T12:00:00Z", delivery="driven") as cloud:
        yield cloud


def test_a_cloud_has_the_variables_of_named_fakes(cloud: Cloud) -> None:
    first, second = cloud.vector_index(), cloud.vector_index(name="the products")
    third = cloud.vector_index()
    assert cloud.env == {
        **first.env,
        "THE_PRODUCTS_UPSTASH_VECTOR_REST_URL": second.url,
        "THE_PRODUCTS_UPSTASH_VECTOR_REST_TOKEN": second.token,
        "VECTOR_INDEX_2_UPSTASH_VECTOR_REST_URL": third.url,
        "VECTOR_INDEX_2_UPSTASH_VECTOR_REST_TOKEN": third.token,
    }
    assert variable_prefix("2nd-ä") == "_2ND___"


def test_the_fixture_sets_the_variables_of_named_fakes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os

        def test_env(fakecloud_env, kv_server, fakecloud):
            second = fakecloud.kv_server(name="second")
            assert os.environ["UPSTASH_REDIS_REST_URL"] == kv_server.url
            assert os.environ["SECOND_UPSTASH_REDIS_REST_URL"] == second.url
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert "SECOND_UPSTASH_REDIS_REST_URL" not in os.environ


# -- state files -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_keeps_the_data_of_each_fake(
    serve: Serve, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "state.json"
    server = serve(*TWO_OF_EACH, "--state", str(file), "--vector", "products:dimension=3")
    env = server.summary["env"]
    redis_of(env).set("k", "main")
    redis_of(env, "SECOND_").set("k", "second")
    index_of(env, "PRODUCTS_").upsert([("b", [1.0, 2.0, 3.0])])
    server.process.terminate()
    assert server.process.wait(20) == 0
    # Another order of the fakes, and another one without a name first.
    again = serve(*reversed(TWO_OF_EACH), "--state", str(file), "--vector", "products:dimension=3")
    env = again.summary["env"]
    first, second = again.fake("kv_server"), again.fake("second")
    values = [
        httpx.get(f"{fake['url']}/get/k", headers=fake["headers"]).json()
        for fake in (first, second)
    ]
    assert values == [{"result": "main"}, {"result": "second"}]
    assert index_of(env, "PRODUCTS_").fetch(["b"])[0] is not None
    again.process.terminate()
    assert again.process.wait(20) == 0
    saved = file.read_bytes()
    done = command("serve", "--random", "kv", "vector", "--state", str(file))
    assert done.returncode == 2
    assert "the file has data for kv:second, but no such fake is open: start it too" in done.stderr
    assert file.read_bytes() == saved


def test_each_part_of_a_file_is_for_the_fake_with_its_name(cloud: Cloud, tmp_path: Path) -> None:
    kv, second = cloud.kv_server(), cloud.kv_server(name="second")
    queue, eu = cloud.queue(), cloud.queue(name="eu")
    content = {
        "kv": {"values": {"k": "main"}},
        "kv:second": {"values": {"k": "second"}},
        "queue:eu": {"messages": [{"url": "https://eu.example/x", "delay": "1h"}]},
        "destinations": {"https://main.example": 200},
        "destinations:eu": {"https://eu.example": 201},
        "faults": {"kv:second": [{"kind": "respond", "args": [503], "times": 1}]},
    }
    load_state(cloud, checked_state(content, "state"), tmp_path)
    assert (kv.value("k"), second.value("k")) == ("main", "second")
    assert (len(kv.faults), len(second.faults)) == (0, 1)
    assert [len(fake.messages()) for fake in (queue, eu)] == [0, 1]
    prefixes = [[route.prefix for route in fake.destinations.routes()] for fake in (queue, eu)]
    assert prefixes == [["https://main.example"], ["https://eu.example"]]
    saved = json.loads(encoded_state(saved_state(cloud)))
    assert saved["saved"].keys() == {"kv", "kv:second", "queue", "queue:eu"}
    assert saved["faults"].keys() == {"kv:second"}
    assert saved["destinations"].keys() == {"https://main.example"}
    assert saved["destinations:eu"].keys() == {"https://eu.example"}
    with Cloud(seed=2, now="2026-01-01T12:00:00Z", delivery="driven") as other:
        second, queues = other.kv_server(name="second"), [other.queue(name="eu"), other.queue()]
        with pytest.raises(
            ContractError, match=r"data for kv and for kv:second, and both .* second"
        ):
            load_state(other, checked_state(saved, "state"), tmp_path)
        assert second.value("k") is None
        main = other.kv_server()
        load_state(other, checked_state(saved, "state"), tmp_path)
        assert (main.value("k"), second.value("k")) == ("main", "second")
        assert [len(queue.messages()) for queue in queues] == [1, 0]


def test_data_without_a_name_is_for_the_only_fake_of_its_service(
    cloud: Cloud, tmp_path: Path
) -> None:
    second = cloud.kv_server(name="second")
    load_state(cloud, {"kv": {"values": {"k": "v"}}}, tmp_path)
    assert second.value("k") == "v"
    with pytest.raises(ContractError, match="data for kv:third, but no such fake is open"):
        load_state(cloud, {"kv:third": {"values": {"k": "v"}}}, tmp_path)
    with pytest.raises(ContractError, match=r"kv:second.*is 1; pass an object"):
        checked_state({"kv:second": 1}, "state")
    with pytest.raises(ContractError, match="'kv:' is not a field"):
        checked_state({"kv:": {}}, "state")


@pytest.mark.slow
def test_isolated_clouds_start_with_the_data_of_their_fakes(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    parts = {
        "kv": {"values": {"k": "main"}},
        "kv:second": {"values": {"k": "second"}},
        "faults": {"kv": [{"kind": "respond", "args": [503], "command": "DEL"}]},
    }
    file.write_text(json.dumps(parts), encoding="utf-8")
    server = serve("kv", "kv:second", "--load", str(file))
    for part, prefix, value in (
        ("kv:second", "SECOND_", "second"),
        ("kv:third", "THIRD_", "main"),
        ("kv", "", "main"),
    ):
        cloud = server.ask("POST", "/clouds", {"services": {part: {}}})[1]
        assert redis_of(cloud["env"], prefix).get("k") == value


# -- tests that the console writes -----------------------------------------------------------------


def test_copied_tests_start_named_fakes(tmp_path: Path) -> None:
    def around(name: str, fixture: str, status: int | None = 200) -> Surroundings:
        return Surroundings("call", TestedFake(name, fixture), "2026-01-01T09:30:00.000Z", status)

    upsert = HttpRequest("POST", "/upsert", body='{"id": "a", "vector": [1, 2]}')
    publish = HttpRequest("POST", "/v2/publish/https://app.example/x", body="b")
    tests: list[AnyTest] = [
        CommandsTest(
            around("second", "kv_server"), [["SET", "k", "v"]], [Step(["GET", "k"], Known("v"))]
        ),
        RequestTest(around("products", "vector_index"), [], upsert, Known({"result": "Success"})),
        DeliveryTest(around("us-east-1", "queue", 503), publish, "https://app.example/x"),
        RequestTest(
            around("events", "broker", 404), [], HttpRequest("GET", "/produce/orders/hello")
        ),
    ]
    for number, test in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(in_pytest.written(test), encoding="utf-8")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "4 passed" in ran.stdout, ran.stdout
    variables = [
        ["SECOND_REDIS_URL"],
        ["PRODUCTS_UPSTASH_VECTOR_REST_URL", "PRODUCTS_UPSTASH_VECTOR_REST_TOKEN"],
        [
            "US_EAST_1_QSTASH_URL",
            "US_EAST_1_QSTASH_TOKEN",
            '"/fakes/us-east-1/',
            'call("us-east-1"',
        ],
        ["EVENTS_UPSTASH_KAFKA_REST_URL", "EVENTS_UPSTASH_KAFKA_REST_USERNAME"],
    ]
    vitest, go = ([write(test) for test in tests] for write in (in_vitest.written, in_go.written))
    for text, names in zip(vitest, variables, strict=True):
        assert all(name in text for name in names), text
    for token, file in (
        ("SECOND_UPSTASH_REDIS_REST_TOKEN", go[0]),
        ("EVENTS_UPSTASH_KAFKA_REST_PASSWORD", go[3]),
    ):
        assert file is not None
        assert token in file
    assert go[2] is None


CLIENTS = """
import {REDIS_CLIENTS, prefixOf} from "./copying.js";
const prefix = prefixOf({name: "2nd-one", fixture: "kv_server"});
console.log(JSON.stringify(Object.values(REDIS_CLIENTS).map((write) => write([["GET", "k"]], prefix))));
"""


def test_copied_commands_connect_to_named_fakes(tmp_path: Path) -> None:
    need()
    shutil.copy(ROOT / "pytest_fakecloud" / "reporting" / "render" / "copying.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "write.js").write_text(CLIENTS)
    done = subprocess.run(
        ["node", str(tmp_path / "write.js")],
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=True,
    )  # fmt: skip
    clients = json.loads(done.stdout)
    assert len(clients) == 5
    assert all("_2ND_ONE_REDIS_URL" in text for text in clients)
