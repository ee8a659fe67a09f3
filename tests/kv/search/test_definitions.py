"""Definitions of indexes: their size, who may change them, and how they are told on the wire."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import to_json, to_resp
from tests.kv.conftest import Run

from .conftest import Searching


def test_the_size_grows(shop: Searching) -> None:
    flat = shop.run("SEARCH.DESCRIBE i")
    assert flat[flat.index(b"indexSize") + 1] > 100


def test_the_reading_user_may_look_and_not_change(shop: Searching) -> None:
    engine = shop.run.engine
    reader = shop.run.other(user=engine.users.read_only)
    assert reader("SEARCH.COUNT", "i", "{}") == 4
    for line in ("SEARCH.LISTINDEXES", "SEARCH.LISTALIASES", "SEARCH.DESCRIBE i",
                 "SEARCH.WAITINDEXING i", "SEARCH.QUERY i {}"):  # fmt: skip
        reader(line)
    for line in ("SEARCH.DROP i", "SEARCH.REINDEX i", "SEARCH.ALIASADD a i", "SEARCH.ALIASDEL a",
                 "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT"):  # fmt: skip
        assert reader.error(line).startswith("NOPERM")


class TestOnTheWire:
    def test_maps_are_maps_in_resp3_and_flat_in_resp2(self, shop: Searching) -> None:
        described = shop.run("SEARCH.DESCRIBE i")
        assert to_resp(described, 3).startswith(b"%7\r\n$4\r\nname\r\n")
        assert to_resp(described, 2).startswith(b"*14\r\n$4\r\nname\r\n")
        aggregated = shop.run("SEARCH.AGGREGATE", "i", "{}", '{"a":{"$avg":{"field":"price"}}}')
        assert to_resp(aggregated, 3).startswith(b"%1\r\n$1\r\na\r\n%1\r\n$5\r\nvalue\r\n$")
        assert to_json(shop.run("SEARCH.QUERY", "i", '{"price":40}', "NOCONTENT")) == [
            ["p:2", "1.2039728"]
        ]

    def test_names_need_not_be_utf_8(self, run: Run) -> None:
        head = b"SEARCH.CREATE i\xff ON HASH PREFIX 1 p\xff SCHEMA t\xff TEXT"
        run(*head.split())
        run("HSET", b"p\xff1", b"t\xff", b"word \xff")
        found = run("SEARCH.QUERY", b"i\xff", "{}", "SELECT", "1", b"t\xff")
        assert found == [[b"p\xff1", b"1", [[b"t\xff", b"word \xff"]]]]
        assert run("SEARCH.DESCRIBE", b"i\xff")[-1] == [[b"t\xff", b"TEXT"]]
        assert "Unknown field" in run.error("SEARCH.QUERY", b"i\xff", '{"t\\u00ff":1}')
        assert run("SEARCH.LISTINDEXES", "MATCH", b"i\xff")[0][1] == b"i\xff"


def test_an_index_has_a_thousand_fields(run: Run) -> None:
    def create(count: int) -> str:
        fields = " ".join(f"f{number} TEXT" for number in range(count))
        return f"SEARCH.CREATE i{count} ON JSON PREFIX 1 p{count}: SCHEMA {fields}"

    assert run(create(1000)) == 1
    assert run.error(create(1001)) == "ERR an index can have at most 1000 fields, not 1001"
