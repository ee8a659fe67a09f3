"""The names in a completion list of ``KVServer``."""

from __future__ import annotations

from pytest_fakecloud.handle import Handle
from pytest_fakecloud.kv.handle import KVServer


def test_completion_lists_only_public_names() -> None:
    own = {name for name in dir(KVServer) if not name.startswith("_")}
    assert own - {*dir(Handle), *Handle.__annotations__} == {
        *(
            "between", "database_url", "dump_rdb", "execute", "keys", "read_only_token",
            "reset_password",
        ),
        *("assert_not_searched", "assert_searched", "search_index", "searches"),
        *("ttl", "value", "values"),
        *("elements", "entries", "hash", "integer", "members", "scores", "string"),
    }  # fmt: skip
