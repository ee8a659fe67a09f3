"""Parsing commands: both forms, limits, and the errors of a real server."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_fakecloud.kv.resp.wire import (
    SHORT,
    CommandReader,
    ProtocolFault,
    protocol_of,
    short_command,
)
from tests.kv.comparison.wire import pack


def reader(*, authenticated: bool = True, longest: int = 1000) -> CommandReader:
    return CommandReader(lambda: authenticated, lambda: longest)


def all_of(source: CommandReader) -> list[list[bytes]]:
    lines = []
    while (line := source.next()) is not None:
        lines.append(line)
    return lines


class TestWayIn:
    @pytest.mark.parametrize(
        ("begun", "kind"),
        [
            (b"*", "redis"), (b"*1\r\n$4", "redis"), (b"GET / HTTP/1.1\r\n", "http"),
            (b"POST /set/a HTTP/1.0\n", "http"), (b"GET key\r\n", "redis"),
            (b"GET / HTTP/2.0\r\n", "redis"), (b"SET k ' HTTP/1.1'\r\n", "redis"),
            (b"\r\n", "redis"), (b"GET / HTT", None), (b"P", None), (b"x" * 70_000, "redis"),
        ],
    )  # fmt: skip
    def test_the_first_bytes_decide(self, begun: bytes, kind: str | None) -> None:
        assert protocol_of(begun) == kind


class TestCommands:
    @given(
        st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), max_size=6),
        st.integers(1, 60),
    )
    def test_however_it_is_cut(self, lines: list[list[bytes]], size: int) -> None:
        wire = b"".join(map(pack, lines))
        source, actual = reader(), []
        for at in range(0, len(wire), size):
            source.feed(wire[at : at + size])
            actual += all_of(source)
        assert actual == lines
        assert not source.pending

    @pytest.mark.parametrize("count", [9, 10, 11])
    @pytest.mark.parametrize("size", [0, 9, 10, 999, 1000])
    def test_short_and_long_commands_side_by_side(self, count: int, size: int) -> None:
        lines = [[b"GET", b"k"], [b"x" * size] * count, [b"y" * size, b""], [b"PING"]]
        source = reader()
        source.feed(b"".join(map(pack, lines)))
        assert all_of(source) == lines
        assert not source.pending

    @pytest.mark.parametrize("end", range(1, 27))
    def test_the_end_of_a_short_command_may_come_later(self, end: int) -> None:
        line = pack([b"SET", b"key", b"v"])
        source = reader()
        source.feed(pack([b"PING"]) + line[:-end])
        assert all_of(source) == [[b"PING"]]
        assert source.pending == (end < len(line))
        source.feed(line[-end:] + pack([b"PING"]))
        assert all_of(source) == [[b"SET", b"key", b"v"], [b"PING"]]

    @given(st.lists(st.binary(max_size=99), min_size=1, max_size=12))
    @example([b"GET", b"k"])
    @example([b"GET", b"a\r\nb"])
    @example([b"x" * (SHORT - 13)])
    @example([b"x" * (SHORT - 12)])
    @example([b"x" * (SHORT - 11)])
    @example([b"x"] * 10)
    @example([b"x"] * 11)
    def test_a_short_command(self, line: list[bytes]) -> None:
        data = pack(line)
        has_few_lines = len(line) <= 10 and not any(b"\r\n" in word for word in line)
        for rest in (b"", b"*"):
            is_short = has_few_lines and len(data + rest) <= SHORT
            expected = (line, len(data)) if is_short else ([], 0)
            assert short_command(data + rest) == expected
        assert short_command(data[:-1]) == ([], 0)

    @given(st.lists(st.sampled_from([b"*1", b"*2", b"$0", b"$1", b"$6", b"a", b"", b"\r\n"])))
    @example([b"*1", b"$1", b"a", b""])
    @example([b"*2", b"$6", b"a", b"$0", b"", b""])
    def test_what_is_read_as_a_short_command_is_one(self, parts: list[bytes]) -> None:
        data = b"\r\n".join(parts)
        (command, size), source = short_command(data), reader()
        if command:
            source.feed(data[:size])
            assert all_of(source) == [command]
            assert not source.pending

    def test_both_forms_in_one_connection(self) -> None:
        source = reader()
        longest = b"x" * 65_536
        source.feed(b"PING\r\n*1\r\n$4\r\nPING\r\n\r\n*0\r\n*-1\r\nECHO 'a b'\n" + longest)
        assert all_of(source) == [[b"PING"], [b"PING"], [b"ECHO", b"a b"]]
        source.feed(b"\n")
        assert all_of(source) == [[longest]]

    def test_incomplete_commands_wait(self) -> None:
        source = reader()
        source.feed(b"*2\r\n$3\r\nGET\r\n$1\r\n")
        assert source.next() is None
        assert source.pending
        source.feed(b"k\r\n")
        assert source.next() == [b"GET", b"k"]

    def test_a_large_word_costs_its_size(self) -> None:
        source = reader(longest=2**24)
        wire = pack([b"SET", b"k", b"x" * 2**22])
        for at in range(0, len(wire), 4096):
            source.feed(wire[at : at + 4096])
            line = source.next()
        assert line is not None
        assert len(line[2]) == 2**22


class TestFaults:
    @pytest.mark.parametrize(
        ("wire", "reason"),
        [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*3000000000\r\n", "invalid multibulk length"),
            (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$-5\r\n", "invalid bulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length"),
            (b"SET k 'a b\r\n", "unbalanced quotes in request"),
            (b'SET k "a"b\r\n', "unbalanced quotes in request"),
            (b"x" * 65_537 + b"\n", "too big inline request"),
            (b"*" + b"1" * 70_000, "too big mbulk count string"),
            (b"*1\r\n$" + b"1" * 70_000, "too big bulk count string"),
        ],
    )
    def test_texts_of_the_real_server(self, wire: bytes, reason: str) -> None:
        source = reader()
        source.feed(wire)
        with pytest.raises(ProtocolFault) as caught:
            all_of(source)
        assert caught.value.text == f"ERR Protocol error: {reason}".encode()

    @pytest.mark.parametrize(
        ("wire", "reason"),
        [
            (b"*11\r\n", "unauthenticated multibulk length"),
            (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
        ],
    )
    def test_limits_before_login(self, wire: bytes, reason: str) -> None:
        source = reader(authenticated=False, longest=2**20)
        source.feed(wire)
        with pytest.raises(ProtocolFault, match=reason):
            source.next()
        trusted = reader(longest=2**20)
        trusted.feed(wire)
        assert trusted.next() is None

    @given(st.binary(max_size=60))
    def test_any_bytes_end_in_commands_or_a_fault(self, wire: bytes) -> None:
        source = reader()
        source.feed(wire)
        try:
            lines = all_of(source)
        except ProtocolFault:
            return
        assert all(lines)
