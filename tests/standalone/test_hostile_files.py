"""Test files of any content and type: errors are reported quickly and in one line."""

from __future__ import annotations

import io
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.cloud.base import start_over
from pytest_fakecloud.cloud.files import read_file
from pytest_fakecloud.recordings.archives import replay
from pytest_fakecloud.standalone.state_file import load_state, read_state
from pytest_fakecloud.vector import loading

from .conftest import Command

LONG = "x" * 200_000
LONGEST_LINE = 1500


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T12:00:00Z", delivery="driven") as opened:
        for fixture in ("kv_server", "vector_index", "broker", "queue"):
            getattr(opened, fixture)()
        yield opened


def outcome(cloud: Cloud, file: Path) -> str:
    """Load a file; return the error message, or nothing."""
    try:
        load_state(cloud, read_state(file), file.parent)
    except ContractError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert len(text) < LONGEST_LINE
        return text
    finally:
        start_over(cloud)
    return ""


# -- contents --------------------------------------------------------------------------------------


DEEP = {
    "<objects>": b'{"a":' * 900 + b"1" + b"}" * 900,
    "<lists>": b"[" * 900 + b"]" * 900,
    "<both>": b'{"url":[' * 100 + b"1" + b"]}" * 100,
}
"""Values that ``orjson`` can read but not write, each with a replacement."""


def written(template: str, word: str, value: Any) -> bytes:
    """Return JSON text in which a word of the template is replaced by a value."""
    text = template.encode().replace(word.encode(), orjson.dumps(value))
    for name, deep in DEEP.items():
        text = text.replace(b'"%s"' % name.encode(), deep)
    return text


ODD = [
    None, True, 0, -1, 2**53, 2**63, 0.5, 1e308, "", " ", "\0", "a\0b", "../x", "/dev/zero", "fifo",
    "none.jsonl", "none.npz", ".", "x" * 300, LONG, "ü☃\u202e\x1b[2J\n", "1h", "https://a.test",
    "http://[", "https://a b", "https://*/*", "*", "9" * 5000, [], {}, [[]], [None], {"": ""}, [LONG],
    {LONG: LONG}, *DEEP, [*DEEP], {"a": "<lists>"},
]  # fmt: skip
PLACES_IN = {
    "kv": [
        "ODD", '{"values": ODD}', '{"values": {"k": ODD}}', '{"commands": ODD}',
        '{"commands": [ODD]}', '{"commands": [["SET", "k", ODD]]}', '{"commands": [[ODD]]}',
    ],
    "vector": [
        "ODD", '{"": ODD}', '{"": [ODD]}', '{"": [{"id": ODD, "vector": [1, 2]}]}',
        '{"": [{"id": "a", "vector": ODD}]}', '{"": [{"id": "a", "vector": [ODD]}]}',
        '{"": [{"id": "a", "vector": [1], "metadata": ODD, "data": ODD}]}',
    ],
    "broker": [
        "ODD", '{"t": ODD}', '{"t": [ODD]}', '{"t": [{"value": ODD}]}',
        '{"t": [{"value": "v", "key": ODD, "headers": ODD}]}',
        '{"t": [{"value": "v", "partition": ODD, "timestamp": ODD}]}',
    ],
    "queue": [
        "ODD", '{"messages": ODD}', '{"messages": [ODD]}', '{"messages": [{"url": ODD}]}',
        '{"messages": [{"url": "https://a.test", "body": ODD, "label": ODD}]}',
        '{"messages": [{"url": "https://a.test", "json": ODD, "delay": ODD}]}',
        '{"messages": [{"url": "https://a.test", "headers": ODD}]}',
        '{"schedules": [{"url": "https://a.test", "cron": ODD}]}', '{"url_groups": {"g": ODD}}',
        '{"url_groups": {"g": [ODD]}}', '{"queues": {"q": ODD}}',
        '{"queues": {"q": {"parallelism": ODD}}}',
    ],
    "destinations": [
        "ODD", '{"https://a.test": ODD}', '{"https://a.test": {"status": ODD}}',
        '{"https://a.test": {"status": 200, "body": ODD, "after": ODD}}',
        '{"https://a.test": {"status": 200, "headers": {"X-A": ODD}}}',
    ],
    "faults": [
        "ODD", '{"kv": ODD}', '{"kv": [{"kind": ODD}]}',
        '{"queue": [{"kind": "respond", "args": ODD}]}',
        '{"queue": [{"kind": "respond", "args": [ODD]}]}',
        '{"broker": [{"kind": "delay", "args": [ODD], "times": ODD}]}',
        '{"vector": [{"kind": "drop", "route": ODD, "self": ODD}]}',
    ],
}  # fmt: skip
"""For each part of a state file, templates in which ODD is replaced by a value."""
PLACES = ["ODD", *(f'{{"{part}": {of}}}' for part, places in PLACES_IN.items() for of in places)]
NAMED = [
    '{NAME: {}}', '{"kv": {NAME: {}}}', '{"kv": {"values": {NAME: "v"}}}',
    '{"vector": {NAME: [{"id": "a", "vector": [1]}]}}', '{"broker": {NAME: ["v"]}}',
    '{"queue": {NAME: {}}}', '{"queue": {"url_groups": {NAME: ["https://a.test"]}}}',
    '{"queue": {"queues": {NAME: {}}}}', '{"queue": {"messages": [{NAME: 1}]}}',
    '{"destinations": {NAME: 200}}', '{"faults": {NAME: []}}',
    '{"faults": {"kv": [{"kind": "drop", NAME: 1}]}}',
]  # fmt: skip
"""Templates in which NAME is replaced by a string."""


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_any_value_at_any_place(cloud: Cloud, tmp_path: Path, number: int) -> None:
    file = tmp_path / "state.json"
    for odd in ODD:
        file.write_bytes(written(PLACES[number], "ODD", odd))
        outcome(cloud, file)


def test_any_name_at_any_place(cloud: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for place in NAMED:
        for odd in (value for value in ODD if isinstance(value, str)):
            file.write_bytes(written(place, "NAME", odd))
            outcome(cloud, file)


VALUES = st.recursive(
    st.sampled_from(ODD) | st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=9), of, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PLACES), VALUES)
def test_any_mixture(cloud: Cloud, tmp_path: Path, place: str, value: Any) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(written(place, "ODD", value))
    outcome(cloud, file)


@pytest.mark.parametrize(
    "content",
    [
        b"", b" ", b"{", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"\0" * 1000, b"[" * 100_000,
        b'{"a":' * 100_000, b'{"kv":' + b"9" * 100_000 + b"}", b'{"kv":1e999}', b'{"kv":NaN}',
        b'{"kv":"\\ud800"}', b'{"' + LONG.encode() + b'":1}', b"'" + LONG.encode(), b"{}{}",
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_not_a_state_file(cloud: Cloud, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    assert outcome(cloud, tmp_path / "state.json")


# -- arrays ----------------------------------------------------------------------------------------


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


TWO = np.ones((2, 3))
HUGE = npy(TWO).replace(b"(2, 3)", b"(99999999999, 3)")
ARRAYS = {
    "no archive": b"x" * 100,
    "nothing": b"",
    "one array": npy(TWO),
    "cut short": saved(vectors=TWO)[:-40],
    "no members": zipped(),
    "a member that is no array": zipped(**{"notes.txt": b"text"}),
    "vectors that are no array": zipped(vectors=b"text"),
    "beside vectors one that is none": zipped(**{"vectors.npy": npy(TWO), "ids": b"text"}),
    "not what its name says": zipped(**{"vectors.npy": b"text"}),
    "a header that lies": zipped(**{"vectors.npy": HUGE}),
    "a header without an end": zipped(**{"vectors.npy": npy(TWO)[:8] + b"\xff\xff" + b"(" * 65535}),
    "objects": zipped(**{"vectors.npy": npy(np.array([{}], dtype=object))}),
    "texts": saved(vectors=np.array([["a", "b"]])),
    "complex": saved(vectors=TWO * 1j),
    "dates": saved(vectors=np.zeros((2, 2), dtype="datetime64[s]")),
    "records": saved(vectors=np.zeros((2, 2), dtype=[("a", "f4")])),
    "no numbers": saved(vectors=TWO * np.nan),
    "one dimension": saved(vectors=np.ones(3)),
    "three dimensions": saved(vectors=np.ones((1, 2, 3))),
    "a scalar": saved(vectors=np.array(1)),
    "scalars by id": saved(a=np.array(1)),
    "texts by id": saved(a=np.array("b")),
    "ids too many": saved(vectors=TWO, ids=np.array(["a", "b", "c"])),
    "ids that are numbers": saved(vectors=TWO, ids=np.array([1.5, 2])),
    "ids that are long": saved(vectors=TWO, ids=np.array([LONG, "b"])),
    "ids that are records": saved(vectors=TWO, ids=np.zeros(2, dtype=[("a", "f4")])),
    "metadata that is no JSON": saved(vectors=TWO, metadata=np.array([LONG, "{"])),
    "metadata that is deep": saved(vectors=TWO, metadata=np.array(["[" * 5000, "{}"])),
    "metadata that is a number": saved(vectors=TWO, metadata=np.array([1, 2])),
    "data that is a number": saved(vectors=TWO, data=np.array([1, 2])),
    "unknown columns": saved(vectors=TWO, **{LONG[:30_000]: TWO}),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_file_of_arrays(cloud: Cloud, tmp_path: Path, name: str) -> None:
    (tmp_path / "data.npz").write_bytes(ARRAYS[name])
    (tmp_path / "state.json").write_text('{"vector": {"": "data.npz"}}', encoding="utf-8")
    message = outcome(cloud, tmp_path / "state.json")
    assert message.startswith("vector.'': ") or name in ("no members", "ids that are long")


def test_arrays_that_unpack_to_much_are_not_read(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "DATA_BYTES", 100_000)
    file = tmp_path / "data.npz"
    np.savez_compressed(file, vectors=np.zeros((1000, 1000)))
    assert file.stat().st_size < 100_000
    (tmp_path / "state.json").write_text('{"vector": {"": "data.npz"}}', encoding="utf-8")
    assert "at most 1000000 of 100000 are read" in outcome(cloud, tmp_path / "state.json")


# -- kinds of files --------------------------------------------------------------------------------


def kinds(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield names of files that cannot be loaded, each with words of the error message."""
    yield str(folder), ""
    yield str(folder / "none"), "No such file"
    yield str(folder / ("x" * 300)), ""
    yield "a\0b", "null"
    if os.name != "nt":
        os.mkfifo(folder / "fifo")
        (folder / "loop").symlink_to(folder / "loop")
        yield str(folder / "fifo"), "it is not a regular file"
        yield str(folder / "loop"), ""
        yield "/dev/zero", "it is not a regular file"
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    yield str(folder / "sparse"), "has 1099511627776 bytes, and at most"


def test_what_is_not_a_file_to_read_is_refused_wherever_it_is_named(
    cloud: Cloud, tmp_path: Path
) -> None:
    for name, words in kinds(tmp_path):
        path = Path(name)
        doors: list[Callable[[], object]] = [
            lambda path=path: read_state(path),
            lambda name=name: load_state(cloud, {"broker": {"t": name}}, tmp_path),
            lambda name=name: load_state(cloud, {"vector": {"": f"{name}.npz"}}, tmp_path),
            lambda path=path: replay(cloud, path),
        ]
        for door in doors:
            # Reading a pipe must fail the test instead of blocking it.
            raised: list[str] = []

            def knock(door: Callable[[], object] = door, raised: list[str] = raised) -> None:
                try:
                    door()
                except ContractError as error:
                    raised.append(str(error))

            thread = threading.Thread(target=knock, daemon=True)
            thread.start()
            thread.join(30)
            assert raised, name
            assert "cannot read" in raised[0]
            assert len(raised[0]) < LONGEST_LINE
        with pytest.raises(ContractError, match=words or "cannot read"):
            read_file(path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc of Linux")
def test_a_file_that_grows_after_its_check_is_not_cut() -> None:
    # The files in /proc have content, although their size is 0.
    with pytest.raises(ContractError, match="it has 11 bytes, and at most 10 are read"):
        read_file("/proc/self/maps", 10)
    size = Path(__file__).stat().st_size
    assert len(read_file(__file__, size)) == size


@pytest.mark.parametrize("option", ["--load", "--config"])
@pytest.mark.parametrize("content", [b"", b"[" * 5000, b"\xff", b"a = " + b"[" * 5000, None])
def test_a_server_ends_with_one_line(
    command: Command, tmp_path: Path, option: str, content: bytes | None
) -> None:
    file = tmp_path / "given"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    done = command(
        "serve", "kv", "--random", option, str(file), "--port" if content == b"" else "--json"
    )
    assert done.returncode == 2
    if content != b"":
        (line,) = done.stderr.splitlines()
        assert line.startswith("pytest-fakecloud: ")
        assert len(line) < LONGEST_LINE
