"""The typed surface of the handle: what can be given, and what a completion list shows."""

from __future__ import annotations

import inspect
import typing

from pytest_fakecloud.handle import Handle
from pytest_fakecloud.kv.handle import KVServer
from pytest_fakecloud.kv.settings import KVSettings


def test_the_typed_dict_has_the_keywords_of_the_constructor() -> None:
    parameters = list(inspect.signature(KVServer.__init__).parameters.values())
    keywords = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert [each.name for each in keywords] == list(KVSettings.__annotations__)
    hints = typing.get_type_hints(KVServer.__init__, vars(typing), _names())
    assert {each.name: hints[each.name] for each in keywords} == typing.get_type_hints(KVSettings)
    assert not KVSettings.__required_keys__


def _names() -> dict[str, object]:
    import pytest_fakecloud.kv.handle as module

    return vars(module)


def test_a_handle_shows_only_what_a_tester_uses() -> None:
    own = {name for name in dir(KVServer) if not name.startswith("_")}
    assert own - {*dir(Handle), *Handle.__annotations__} == {
        *(
            "between",
            "database_url",
            "dump_rdb",
            "execute",
            "keys",
            "read_only_token",
            "reset_password",
        ),
        *("assert_not_searched", "assert_searched", "search_index", "searches"),
        *("ttl", "value", "values"),
        *("elements", "entries", "hash", "integer", "members", "scores", "string"),
    }
