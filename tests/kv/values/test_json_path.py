"""JSON paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.budget import Budgeted, OverBudget
from pytest_fakecloud.kv.values.json import PathError
from pytest_fakecloud.kv.values.json_path import compile_path
from tests.harness import check_each

DOC: dict[str, Any] = {
    "store": {
        "book": [
            {"category": "reference", "author": "Nigel", "price": 8.95, "a-b": 1},
            {"category": "fiction", "price": 12.99, "isbn": "x"},
            {"category": "fiction", "price": 9, "isbn": "y"},
        ],
        "bicycle": {"color": "red", "price": 19.95},
    },
    "a": 2,
    "nested": {"a": 4, "b": {"a": None}},
    "list": [1, 2, 3, "a", True, None],
    "1": "one",
    "k y": "spaced",
    "$x": 3,
    "_u": 4,
    "é": 5,
    "true": 6,
    'q"': 7,
}


def values(path: str) -> list[object]:
    return [match.value for match in compile_path(path.encode()).find(DOC)]


def places(path: str) -> list[tuple[str | int, ...]]:
    return [match.parts for match in compile_path(path.encode()).find(DOC)]


def test_matches_of_paths() -> None:
    def check(path: str, wanted: list[object]) -> None:
        assert values(path) == wanted

    check_each(
        check,
        [
            ("$.a", [2]), ("$['a']", [2]), ('$["a"]', [2]), ("$..a", [None, 4, 2]), ("$.nope", []),
            ("$.a.b.c", []), ("$.store.book[*].price", [8.95, 12.99, 9]),
            ("$.store.book[0].a-b", [1]), ("$.store.book[0]['a-b']", [1]),
            ("$.store.book[0,2].price", [8.95, 9]), ("$['a','nope','_u']", [2, 4]),
            ("$.store.book[-1].price", [9]), ("$.store.book[-9].price", []),
            ("$.store.book[0:2].price", [8.95, 12.99]), ("$.store.book[:2].price", [8.95, 12.99]),
            ("$.store.book[1:].price", [12.99, 9]), ("$.store.book[::2].price", [8.95, 9]),
            ("$.list[5:2:-1]", [None, True, "a"]), ("$..book[0].author", ["Nigel"]),
            ("$..[0]", [DOC["store"]["book"][0], 1]), ("$..['price']", [8.95, 12.99, 9, 19.95]),
            ("$..book[?(@.price<10)].price", [8.95, 9]),
            ("$..book[?(@.price<10 && @.isbn)].isbn", ["y"]),
            ("$..book[?(@.isbn || @.author=='Nigel')].price", [8.95, 12.99, 9]),
            ("$..book[?(!@.isbn)].price", [8.95]),
            ("$..book[?@.price > $.a].price", [8.95, 12.99, 9]),
            ("$..book[?(@.category != 'fiction')].price", [8.95]), ("$.list[?(@ == 'a')]", ["a"]),
            ("$.list[?(@ >= 2)]", [2, 3]), ("$.list[?@ == true]", [True]),
            ("$.list[?@ == null]", [None]), ("$.store.book[?(@.author =~ 'Ni.*l')].price", [8.95]),
            ("$.store.book[?(@.author =~ /^ni/)].price", []),
            ("$.store.book[?(@.author =~ '(?i)^ni')].price", [8.95]),
            ("$.store.book[?match(@.author, 'N.*')].price", [8.95]),
            ("$.store.book[?search(@.author, 'ge')].price", [8.95]),
            ("$.store.book[?length(@.category) > 8].price", [8.95]),
            ("$.store.book[?count(@.*) == 3].isbn", ["x", "y"]), ("$.1", ["one"]),
            ("$.k y", ["spaced"]), ("$['k y']", ["spaced"]), ("$.$x", [3]), ("$._u", [4]),
            ("$.é", [5]), ("$.true", [6]), ('$.q"', [7]), ('$["q\\""]', [7]), ("$ .a", [2]),
            ("$.store ['bicycle'] .color", ["red"]), ("$.store.book.* .a-b", [1]),
            ("$.store.book.. *", values("$.store.book..*")),
            ("$.store[?(@['color']=='red')].price", [19.95]),
            # legacy paths
            ("a", [2]), (".a", [2]), ("['a']", [2]), (".nested.b", [{"a": None}]),
            ("store.book[1].isbn", ["x"]), (".store.book[*].price", [8.95, 12.99, 9]),
            ("..a", [None, 4, 2]),
        ],
    )  # fmt: skip


def test_names_and_strings_may_contain_control_characters() -> None:
    paths = [
        '$["{}"]', "$['{}']", '$.["{}"]', '$..["{}"]', '["{}"]', "['{}']", '.["{}"]', "$.a{}b",
        "a{}b", "$[?(@ == '{}')]", '$[?@ == "{}"]', '$[?(@ =~ "^a{}b$")]',
    ]  # fmt: skip

    def check(path: str, control: str) -> None:
        text = f"a{control}b"
        path = path.replace("a{}b", text).replace("{}", text)
        for redis_json in (True, False):
            if not redis_json and ".[" in path and "..[" not in path:
                continue  # Only RedisJSON accepts a dot before a bracket.
            matches = compile_path(path.encode(), redis_json=redis_json).find({text: text})
            assert [match.value for match in matches] == [text]

    controls = ["\n", "\t", "\r", "\0", "\x01", "\x1f", "\n\n\t"]
    check_each(check, [(path, control) for path in paths for control in controls])


SEVERAL = [[1, 3], [0, 2], [2], ["b", "c"], [None, [7], 2.5], []]
"""Lists in which a filter compares all items with another value."""


def test_a_filter_can_compare_several_values() -> None:
    """A comparison is true if one of the values matches; before RedisJSON 8.8, it never is."""

    def check(comparison: str, wanted: list[list[object]]) -> None:
        path = f"$[?({comparison})]".encode()
        assert [match.value for match in compile_path(path).find(SEVERAL)] == wanted
        earlier = [match.value for match in compile_path(path, any_value=False).find(SEVERAL)]
        if "!=" in comparison:
            assert earlier == [values for values in SEVERAL if values != [2]]
        else:
            assert earlier == [values for values in wanted if values == [2]]

    numbers = {
        "== 2": [SEVERAL[1], SEVERAL[2]], "!= 2": [SEVERAL[n] for n in (0, 1, 3, 4, 5)],
        "> 2": [SEVERAL[0], SEVERAL[4]], ">= 2": [SEVERAL[n] for n in (0, 1, 2, 4)],
        "< 2": [SEVERAL[0], SEVERAL[1]], "<= 2": [SEVERAL[0], SEVERAL[1], SEVERAL[2]],
    }  # fmt: skip
    texts = {
        "== 'b'": [SEVERAL[3]], "> 'b'": [SEVERAL[3]], "=~ '^c'": [SEVERAL[3]],
        "== null": [SEVERAL[4]], "== $[2][0]": [SEVERAL[1], SEVERAL[2]],
        "== 9": [],
    }  # fmt: skip
    check_each(check, [
        (f"{path} {comparison}", wanted)
        for path in ("@.*", "@[*]", "@[0,1,2]", "@[:]", "@..*")
        for comparison, wanted in (numbers | texts).items()
    ])  # fmt: skip
    check_each(check, [
        ("2 < @.*", numbers["> 2"]), ("2 == @[*]", numbers["== 2"]),
        ("@.* == $[1,2][1]", [SEVERAL[1], SEVERAL[2]]), ("@.* == $[3]..*", [SEVERAL[3]]),
        ("@.* == 'b' && @.* == 'c'", [SEVERAL[3]]), ("!(@.* == 'b') && @.* > 2", numbers["> 2"]),
    ])  # fmt: skip


@pytest.mark.parametrize("path", ["$a", "$a.b", "$a[0]", "$$", "$ .a", "$a['b']", "$é", "$0"])
def test_only_a_dot_or_a_bracket_continues_a_dollar_in_redisjson(path: str) -> None:
    compiled = compile_path(path.encode(), redis_json=True)
    assert compiled.legacy
    assert not compiled.is_root
    assert not compile_path(b"$.a", redis_json=True).legacy
    assert not compile_path(b"$['a']", redis_json=True).legacy


def test_a_legacy_path_may_begin_with_a_dollar() -> None:
    document = {"$a": {"b": [1]}, "$": 2}
    for path, value in (("$a", {"b": [1]}), ("$a.b", [1]), ("$a['b'][0]", 1), (".$a.b[0]", 1)):
        matches = compile_path(path.encode(), redis_json=True).find(document)
        assert [match.value for match in matches] == [value]


def test_an_empty_path_is_the_root_or_in_redisjson_invalid() -> None:
    assert compile_path(b"").is_root
    with pytest.raises(PathError, match="the path is empty"):
        compile_path(b"", redis_json=True)


@pytest.mark.parametrize("path", ["$", ".", ""])
def test_roots(path: str) -> None:
    compiled = compile_path(path.encode())
    assert (compiled.is_root, compiled.legacy) == (True, path != "$")
    assert compiled.find("just a text") == [((), "just a text")]


def test_parts_are_names_and_indexes() -> None:
    assert places("$.store.book[-1].isbn") == [("store", "book", 2, "isbn")]
    assert places("$..a") == [("nested", "b", "a"), ("nested", "a"), ("a",)]
    as_redis_json = compile_path(b"$..a", redis_json=True).find(DOC)
    assert [path.parts for path in as_redis_json] == [("a",), ("nested", "a"), ("nested", "b", "a")]


def test_a_position_found_twice_is_listed_once() -> None:
    assert places("$.list[0,0,-6]") == [("list", 0)]
    assert len(places("$..*..*")) == len(set(places("$..*..*")))


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [
        ("$.x", [()], "x"), ("$['x y']", [()], "x y"), ("$.nested.x", [("nested",)], "x"),
        ("$.store.book[*].x", [("store", "book", n) for n in range(3)], "x"),
        ("nested.x", [("nested",)], "x"),
    ],
)  # fmt: skip
def test_the_parent_of_a_member(path: str, parent: list[object], name: str) -> None:
    parent_and_name = compile_path(path.encode()).parent_and_name()
    assert parent_and_name is not None
    assert [match.parts for match in parent_and_name[0].find(DOC)] == parent
    assert parent_and_name[1] == name


@pytest.mark.parametrize("path", ["$", "$[0]", "$.a[*]", "$..x", "$['a','b']", "$[?(@.a)]"])
def test_paths_that_do_not_end_in_one_member(path: str) -> None:
    assert compile_path(path.encode()).parent_and_name() is None


def test_bad_paths() -> None:
    def check(path: str) -> None:
        with pytest.raises(PathError):
            compile_path(path.encode()).find(DOC)

    check_each(
        check,
        zip(
            [
                "$[", "$.", "$..", "$x", "$.a[", "$[?(", "$[?(@.a", "$.a[01]", "$['a", "$.a]",
                "$[(@.length-1)]", "$['a]", "$[['a']", "$.  ", "$. .a", "$.. ", "$. ['a']",
            ]
        ),
    )  # fmt: skip


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = [value]
    return value


def test_a_descent_ends_at_its_depth() -> None:
    deep = "cannot evaluate the path: the path or the document is nested too deeply"
    with pytest.raises(PathError, match=deep):
        compile_path(b"$..a").find(nested([], 700))


def test_paths_are_utf8() -> None:
    with pytest.raises(PathError, match="UTF-8"):
        compile_path(b"$.\xff")


def test_expressions_count_by_their_length() -> None:
    with Budgeted(1_000_000), pytest.raises(OverBudget):
        compile_path(b"$[?(@ =~ 'a{100}b')]").find(["a" * 10_000])


class TestHostileQueries:
    @pytest.mark.parametrize(
        "path",
        [
            "$" + "[0,0]" * 60, "$" + "..*" * 30, "$..*..*..*..*", "$" + "[*,0]" * 90,
            "$..[?(@" + "..*" * 20 + ")]", "$[?(count(@" + "..*" * 20 + ") == 1)]",
            "$..[?(@..* == $..*)]",
        ],
    )  # fmt: skip
    def test_a_query_that_multiplies_itself_ends(self, path: str) -> None:
        with Budgeted(), pytest.raises(OverBudget):
            compile_path(path.encode()).find(nested([1], 100))

    def test_comparisons_of_many_or_large_values_end(self) -> None:
        large = [[*range(1000), n] for n in range(100)]

        def check(comparison: str) -> None:
            path = compile_path(f"$.one[?({comparison})]".encode())
            with Budgeted(), pytest.raises(OverBudget):
                path.find(
                    {"one": [1], "many": [*range(2000)], "large": large, "other": large[::-1]}
                )

        check_each(check, [("$.many[*] > $.many[*]",), ("$.large[*] != $.large[*]",)])

    def test_expressions_match_no_lists(self) -> None:
        assert compile_path(b'$[?(@=~"a")]').find([["a"], "b", "a", [["a"]]])[0].parts == (2,)
        assert compile_path(b'$[?(@=~"(a+)+$")]').find([[1], [[2]], {}]) == []


# -- the order of matches, against a reference that is too simple to be wrong ------------------------

Match = tuple[tuple[str | int, ...], object]
Step = tuple[str, str | int]


def members(node: Match) -> list[Match]:
    parts, value = node
    if not isinstance(value, dict | list):
        return []
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)
    return [((*parts, key), item) for key, item in pairs]


def below_then_itself(node: Match) -> Iterator[Match]:
    for member in members(node):
        yield from below_then_itself(member)
    yield node


def expected(root: object, steps: list[Step]) -> list[tuple[str | int, ...]]:
    nodes: list[Match] = [((), root)]
    for dots, wanted in steps:
        hosts = nodes
        if dots == "..":
            hosts = [host for node in nodes for host in below_then_itself(node)]
        nodes = [
            member
            for host in hosts
            for member in members(host)
            if wanted == "*" or (member[0][-1] == wanted and type(member[0][-1]) is type(wanted))
        ]
    return list(dict.fromkeys(parts for parts, _ in nodes))


DOCUMENTS = st.recursive(
    st.sampled_from([None, 1, "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
STEPS = st.lists(
    st.tuples(st.sampled_from([".", ".."]), st.sampled_from(["a", "b", "*", 0, 1])),
    min_size=1,
    max_size=4,
)


@given(DOCUMENTS, STEPS)
def test_matches_below_a_node_come_before_its_own(root: object, steps: list[Step]) -> None:
    path = "$"
    for dots, wanted in steps:
        bracket = isinstance(wanted, int)
        path += f"{'..' if dots == '..' else ''}[{wanted}]" if bracket else f"{dots}{wanted}"
    matches = compile_path(path.encode()).find(root)
    assert [match.parts for match in matches] == expected(root, steps), path
