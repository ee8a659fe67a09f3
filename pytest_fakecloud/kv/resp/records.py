"""What the journal keeps of commands over the Redis protocol, and of their replies."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import orjson

from ...core.calls import Call, CutBytes, record_cut
from ...core.recorder import Recorder
from ...http.messages import Answer
from ..command_fields import facts_of
from ..engine.statistics import WITH_SECRETS, without_secrets

LARGE = 1024 * 1024
"""Size in bytes above which the journal keeps only the beginning of a command or reply. In Redis'
dialect, words have up to 512 MB: to keep them would hold large values a second time, and to make JSON of
a whole command would take longer than to run it.
"""
_SHOWN_WORDS = 256
"""Number of words of a large command that the journal keeps."""
_SHOWN_BYTES = 256
"""Number of bytes that the journal keeps of each of these words, and of a large reply."""


class _CommandFacts:
    """Reads the facts of commands."""

    def facts_of(self, call: Call) -> dict[str, Any]:
        assert isinstance(call, CommandCall)
        facts = {**facts_of([orjson.loads(call.request_body)]), "encoding": ""}
        if call._database:
            facts["database"] = call._database
        if call._node:
            facts["node"] = call._node
        return facts


_FACTS = _CommandFacts()


class CommandCall(Call):
    """A command over the Redis protocol. Its words are kept; the body is the JSON of them."""

    __slots__ = ("_database", "_node", "_words")

    def __init__(
        self,
        words: Iterable[bytes],
        recorder: Recorder,
        at_us: int,
        client: tuple[str, int],
        database: int,
        node: int,
    ) -> None:
        super().__init__(
            0, at_us, recorder.service, recorder.fake, "RESP", "/",
            client=client, reader=_FACTS, route="database-port",
        )  # fmt: skip
        # Not a list, which the garbage collector would examine in each of its runs.
        self._words: tuple[bytes, ...] | None = tuple(words)
        """The words; None once the body was cut."""
        self._database = database
        self._node = node

    @property
    def request_body(self) -> bytes:
        return self._request_body if self._words is None else _json_of(self._words)

    @request_body.setter
    def request_body(self, body: bytes) -> None:
        self._words, self._request_body = None, body


def words_of(call: Call) -> list[bytes]:
    """Return the words of a command over the Redis protocol as they were sent, without its secrets.

    The words of a call that was loaded from a file are those of its JSON, which are text.
    """
    if isinstance(call, CommandCall) and call._words is not None:
        return [*call._words]
    return [word.encode("utf-8", "surrogatepass") for word in orjson.loads(call.request_body)]


def open_call(
    recorder: Recorder,
    line: list[bytes],
    size: int,
    at_us: int,
    *,
    client: tuple[str, int],
    database: int,
    node: int = 0,
) -> Call:
    """Record a command of so many bytes without its secrets, and only the beginning of a large one.
    ``node`` is the number of the node that has received it, or 0 if the server has one address.
    """
    whole = without_secrets(line) if line[0].upper() in WITH_SECRETS else line
    if size <= LARGE:
        call = CommandCall(whole, recorder, at_us, client, database, node)
        recorder.begin_call(call, size)
    else:
        shown = [word[:_SHOWN_BYTES] for word in whole[:_SHOWN_WORDS]]
        call = CommandCall(shown, recorder, at_us, client, database, node)
        recorder.begin_call(call, sum(map(len, shown)))
        record_cut(call, dict.fromkeys(("request_body", *_cut_facts(whole, shown)), size))
    return call


def beginning_of(answer: Answer) -> Answer:
    """Return what the journal keeps of a large reply."""
    beginning = copy(answer)
    beginning.body = CutBytes.of(answer.body[:_SHOWN_BYTES], len(answer.body))
    return beginning


def _cut_facts(line: list[bytes], shown: list[bytes]) -> list[str]:
    """Return the names of the facts that differ if only a part of a command is shown."""
    whole, part = (
        facts_of([[word.decode("latin-1") for word in words]]) for words in (line, shown)
    )
    return [name for name in whole if whole[name] != part[name]]


def _json_of(line: Iterable[bytes]) -> bytes:
    return orjson.dumps([word.decode("utf-8", "replace") for word in line])
