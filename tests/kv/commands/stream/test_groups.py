"""Consumer groups: XGROUP, XREADGROUP, XACK."""

from __future__ import annotations

from tests.kv.conftest import Run


def test_words_too_many(run: Run) -> None:
    run("XADD s 1-1 a b")
    run("XGROUP CREATE s g 0")

    def text(word: str) -> str:
        return f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try XGROUP HELP."

    for words in ("ENTRIESREAD 1 x", "ENTRIESREAD 1 MKSTREAM"):
        assert run.error(f"XGROUP CREATE s h 0 MKSTREAM {words}") == text("CREATE")
    for words in ("x", "ENTRIESREAD", "ENTRIESREAD 3 x", "ENTRIESREAD 3 ENTRIESREAD 3"):
        assert run.error(f"XGROUP SETID s g 0 {words}") == text("SETID")
    [group] = run("XINFO GROUPS s")
    assert dict(zip(group[::2], group[1::2], strict=True))[b"last-delivered-id"] == b"0-0"
