"""Creating, describing, listing and removing indexes and aliases."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import to_json, to_resp
from tests.kv.conftest import Run

from .conftest import SCHEMA, Searching, text

CREATE = "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT"


class TestCreate:
    def test_a_second_one_is_an_error_unless_it_may_exist(self, run: Run) -> None:
        assert run(CREATE) == 1
        assert run.error(CREATE) == "ERR Index i already exists"
        assert run("SEARCH.CREATE i EXISTSOK ON JSON PREFIX 1 p: SCHEMA t TEXT") == 0
        assert (
            run("SEARCH.CREATE i ON JSON PREFIX 1 p: LANGUAGE german EXISTSOK SCHEMA t TEXT") == 0
        )
        for other in (
            "ON HASH PREFIX 1 p: EXISTSOK SCHEMA t TEXT",
            "ON JSON PREFIX 1 q: EXISTSOK SCHEMA t TEXT",
            "ON JSON PREFIX 1 p: EXISTSOK SCHEMA t TEXT NOSTEM",
        ):
            assert run.error(f"SEARCH.CREATE i {other}") == (
                "ERR Index i already exists with another definition"
            )

    def test_a_name_held_by_a_key_is_taken(self, run: Run) -> None:
        run("SET i x")
        assert run.error(CREATE).startswith("WRONGTYPE")

    @pytest.mark.parametrize(
        ("rest", "told"),
        [
            ("ON JSON PREFIX 1 p: SCHEMA t WORDS FAST", "unknown type of field 't' 'WORDS'"),
            ("ON LIST PREFIX 1 p: SCHEMA t TEXT", "unknown index type 'LIST'"),
            ("ON JSON PREFIX 1 p: LANGUAGE latin SCHEMA t TEXT", "unknown language 'latin'"),
            ("ON JSON PREFIX 9 p: SCHEMA t TEXT", "expected 9 prefixes, but fewer words follow"),
            ("ON JSON PREFIX x p: SCHEMA t TEXT", "takes a non-negative integer; got 'x'"),
            ("ON JSON PREFIX 1 p: WHAT SCHEMA t TEXT", "unexpected 'WHAT'"),
            ("ON JSON EXISTSOK SKIPINITIALSCAN SCHEMA t TEXT FROM x", "PREFIX is missing"),
            ("SKIPINITIALSCAN EXISTSOK PREFIX 1 p: SCHEMA t TEXT", "ON is missing"),
            ("ON JSON PREFIX 1 p: EXISTSOK SKIPINITIALSCAN SCHEMA", "SCHEMA has no fields"),
            ("ON JSON PREFIX 1 p: EXISTSOK SKIPINITIALSCAN t", "unexpected 'T'"),
            ("ON JSON PREFIX 1 p: SCHEMA t TEXT FAST", "FAST is not an option of TEXT field 't'"),
            ("ON JSON PREFIX 1 p: SCHEMA t U64 NOSTEM", "NOSTEM is not an option of U64 field 't'"),
            ("ON JSON PREFIX 1 p: SCHEMA t TEXT t U64", "field 't' is declared twice"),
            ("ON JSON PREFIX 1 p: SCHEMA t TEXT FROM", "the source of field 't' is missing"),
        ],
    )
    def test_a_bad_line_names_the_culprit(self, run: Run, rest: str, told: str) -> None:
        error = run.error(f"SEARCH.CREATE i {rest}")
        assert error.startswith("ERR syntax error: ")
        assert told in error

    def test_prefixes_must_not_cover_each_other(self, run: Run) -> None:
        line = "SEARCH.CREATE i ON JSON PREFIX 2 {} SCHEMA t TEXT"
        assert (
            run.error(line.format("p: p:q:"))
            == "ERR prefix 'p:' covers prefix 'p:q:': pass only the first"
        )
        assert (
            run.error(line.format("p: p:"))
            == "ERR prefix 'p:' covers prefix 'p:': pass only the first"
        )
        assert run(line.format("p: q:")) == 1

    def test_ten_indexes_are_the_most(self, run: Run) -> None:
        for number in range(10):
            run(CREATE.replace(" i ", f" i{number} "))
        assert run.error(CREATE) == "ERR Exceeded max index count of 10"
        run("SEARCH.DROP i0")
        assert run(CREATE) == 1

    def test_keys_that_are_there_are_scanned(self, bare: Searching) -> None:
        bare.put("p:1", {"t": "old"})
        bare.run(CREATE)
        bare.run("SEARCH.CREATE j ON JSON PREFIX 1 p: SKIPINITIALSCAN SCHEMA t TEXT")
        bare.put("p:2", {"t": "new"})
        assert bare.found({}) == {"p:1", "p:2"}
        assert bare.found({}, index="j") == {"p:2"}
        assert bare.run("SEARCH.REINDEX j") == 1
        assert bare.found({}, index="j") == {"p:1", "p:2"}


class TestDescribe:
    def test_everything_that_was_declared(self, run: Run) -> None:
        run(
            "SEARCH.CREATE i ON STRING PREFIX 2 q: p: LANGUAGE turkish SCHEMA n F64 FAST "
            "t TEXT NOTOKENIZE NOSTEM FROM a.b old KEYWORD AS c"
        )
        flat = text(run("SEARCH.DESCRIBE i"))
        assert flat == [
            *("name", "i", "type", "STRING", "prefixes", ["p:", "q:"], "language", "turkish"),
            *("indexSize", 0, "pendingUpdates", 0, "schema"),
            [
                ["n", "F64", "FAST"],
                ["t", "TEXT", "NOSTEM", "NOTOKENIZE", "FROM", "a.b"],
                ["old", "KEYWORD", "FROM", "c"],
            ],
        ]

    def test_the_size_grows(self, shop: Searching) -> None:
        flat = shop.run("SEARCH.DESCRIBE i")
        assert flat[flat.index(b"indexSize") + 1] > 100


class TestWithoutIndex:
    def test_each_command_has_its_answer(self, run: Run) -> None:
        assert run("SEARCH.REINDEX no") == 0
        assert run("SEARCH.DROP no") == 0
        assert run("SEARCH.DESCRIBE no") is None
        assert run("SEARCH.WAITINDEXING no") == 0
        assert run("SEARCH.LISTINDEXES") == []
        assert run("SEARCH.QUERY", "no", "{}") is None
        assert run("SEARCH.COUNT", "no", "{}") == -1
        assert run("SEARCH.AGGREGATE", "no", "{}", "{}") is None
        assert run("SEARCH.ALIASDEL no") == 0
        assert run("SEARCH.LISTALIASES") == []


class TestLists:
    def test_indexes_by_name(self, run: Run) -> None:
        for name in ("b:2", "a-1", "b:1"):
            run(CREATE.replace(" i ", f" {name} "))
        run("SEARCH.CREATE h ON HASH PREFIX 1 p: SCHEMA t TEXT")

        def names(options: str = "") -> list[str]:
            return [entry[1] for entry in text(run(f"SEARCH.LISTINDEXES {options}"))]

        assert text(run("SEARCH.LISTINDEXES match h")) == [["name", "h", "type", "HASH"]]
        assert names() == names("LIMIT 0") == ["a-1", "b:1", "b:2", "h"]
        assert names("MATCH b:*") == ["b:1", "b:2"]
        assert names("LIMIT 2 OFFSET 1") == ["b:1", "b:2"]
        assert "unknown option 'WHAT'" in run.error("SEARCH.LISTINDEXES WHAT 1")
        assert "takes a non-negative integer" in run.error("SEARCH.LISTINDEXES LIMIT -1")


class TestAliases:
    def test_they_stand_for_an_index(self, shop: Searching) -> None:
        assert shop.run("SEARCH.ALIASADD a i") == 1
        assert shop.run("SEARCH.ALIASADD a i") == 2
        assert text(shop.run("SEARCH.LISTALIASES")) == [["a", "i"]]
        assert len(shop.found({}, index="a")) == 4
        assert text(shop.run("SEARCH.DESCRIBE a"))[1] == "i"
        assert shop.run("SEARCH.WAITINDEXING a") == shop.run("SEARCH.REINDEX a") == 1
        assert shop.run("SEARCH.DROP a") == 0, "a drop is literal"
        assert shop.run("SEARCH.ALIASDEL a") == 1

    def test_one_may_dangle_and_outlives_its_index(self, run: Run) -> None:
        assert run("SEARCH.ALIASADD a later") == 1
        assert run("SEARCH.COUNT", "a", "{}") == -1
        run(CREATE.replace(" i ", " later "))
        assert run("SEARCH.COUNT", "a", "{}") == 0
        assert run("SEARCH.DROP later") == 1
        assert text(run("SEARCH.LISTALIASES")) == [["a", "later"]]


class TestAccess:
    def test_the_reading_user_may_look_and_not_change(self, shop: Searching) -> None:
        engine = shop.run.engine
        reader = shop.run.other(user=engine.users.read_only)
        assert reader("SEARCH.COUNT", "i", "{}") == 4
        for line in ("SEARCH.LISTINDEXES", "SEARCH.LISTALIASES", "SEARCH.DESCRIBE i",
                     "SEARCH.WAITINDEXING i", "SEARCH.QUERY i {}"):  # fmt: skip
            reader(line)
        for line in ("SEARCH.DROP i", "SEARCH.REINDEX i", "SEARCH.ALIASADD a i",
                     "SEARCH.ALIASDEL a", CREATE):  # fmt: skip
            assert reader.error(line).startswith("NOPERM")

    def test_the_category_has_twelve_commands(self, run: Run) -> None:
        assert len(run("ACL CAT search")) == 12
        run("ACL SETUSER ann on nopass ~* -@all +@search -search.drop")
        ann = run.other(user=run.engine.users["ann"])
        assert ann(CREATE) == 1
        assert ann.error("SEARCH.DROP i").startswith("NOPERM")

    def test_the_table_knows_them(self, run: Run) -> None:
        assert run("COMMAND GETKEYS SEARCH.QUERY i {}") == [b"i"]
        assert SCHEMA.count("TEXT") == 3


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("LIST PREFIX 1 p: SCHEMA a TEXT",
         "unknown index type 'LIST', expected one of JSON, HASH, STRING"),
        ("JSON PREFIX 1 p: SCHEMA a COLOUR",
         "unknown type of field 'a' 'COLOUR', expected one of TEXT, "),
    ],
)  # fmt: skip
def test_words_that_no_index_takes(run: Run, words: str, told: str) -> None:
    assert run.error(f"SEARCH.CREATE i ON {words}").startswith(f"ERR syntax error: {told}")


def test_an_index_has_a_thousand_fields(run: Run) -> None:
    def create(count: int) -> str:
        fields = " ".join(f"f{number} TEXT" for number in range(count))
        return f"SEARCH.CREATE i{count} ON JSON PREFIX 1 p{count}: SCHEMA {fields}"

    assert run(create(1000)) == 1
    assert run.error(create(1001)) == "ERR an index can have at most 1000 fields, not 1001"
