"""Characters that hide or reorder text are escaped in texts, in the JSON's words, and on pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.output_files import write_public
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.as_json import write as write_json
from pytest_fakecloud.reporting.render.page import page, write_index
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.report import Report, report_of


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.journal._recorder.shared.note_caller = Stacks().note
        yield opened


def failed(cloud: Cloud, fail: Callable[[], None], name: str) -> Report:
    with pytest.raises(AssertionError) as caught:
        fail()
    return report_of(
        cloud,
        raised=caught.value,
        test=f"test_{name}",
        failure=f"E   {name}",
        log=name,
        hints=[name],
    )


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x85", "\u061c", "\u200b", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e",
     "\u2066", "\u2069", "\u3164", "\ufdd0", "\ufeff", "\ufffe", "\U0001fffe", "\U000e0041"],
    ids=ascii,
)  # fmt: skip
def test_characters_that_hide_or_reorder_text_are_escaped(
    cloud: Cloud, character: str, tmp_path: Path
) -> None:
    name = f"a{character}b"
    kv, queue, broker = cloud.kv_server(), cloud.queue(), cloud.broker()
    client = kv.client(allow_telemetry=False)
    client.hset(name, name, name)
    client.set(name.upper(), name)
    queue.publish("https://app.example.com/do", body=name)
    queue.run_until_idle()
    broker.create_topic("sales")
    broker.produce("sales", name, key=name)
    index = cloud.vector_index(dimension=1)
    with suppress(httpx.InvalidURL):  # of a control character
        index.client(retries=0).upsert([(name, [1.0], {name: name}, name)], namespace=name)

    def fail() -> None:
        assert kv.value(name) == {}, name

    def fail_of_other_fakes() -> None:
        assert (broker.topic("sales"), index.namespaces(), queue.messages()) == ()

    report = failed(cloud, fail, name)
    shown = text(report)
    assert character not in shown
    assert shown.count(ascii(character)[1:-1]) > 5
    assert character not in text(failed(cloud, fail_of_other_fakes, name))
    data = as_json(report)
    parts = "what", "answer", "note"
    words = [row["text"][part] for row in data["rows"] for part in parts]
    words += [data["statement"]["text"], data["statement"]["headline"]]
    assert not any(character in word for word in words)
    header = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page(cloud, report))
    assert character not in header
    written = write_public(tmp_path / "a.html", page(cloud, report))
    write_json(report, written.with_suffix(".json"))
    index = write_index(tmp_path)
    assert index is not None
    assert character not in index.read_text("utf-8")
