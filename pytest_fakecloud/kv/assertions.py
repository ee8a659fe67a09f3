"""The part of ``KVServer`` that inspects search indexes and asserts searches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Unpack

from ..core.errors import ContractError
from ..core.matching import Condition
from .contents import KVContents
from .engine.engine import Engine

if TYPE_CHECKING:
    from ..core.found import Found
    from .engine.keyspace import Keyspace
    from .search.index import Search
    from .search.views import SearchFields, SearchIndexView


class KVAssertions(KVContents):
    """Adds the inspections and assertions of searches."""

    def search_index(self, name: str) -> SearchIndexView:
        """Return a view of a search index: its schema, documents and pending changes.

        ``name`` is the name of the index or an alias. The view's ``explain(key, filter)`` returns
        the reason why a filter does not find a key. Raises ``ContractError`` if there is no such
        index.
        """
        from .search.views import SearchIndexView

        return SearchIndexView(self._reading, name)

    @property
    def searches(self) -> Found[Search]:
        """Return the searches that clients made, oldest first, with their results."""
        from .search.views import searches_of

        return searches_of(self._memory().searches)

    def assert_searched(
        self,
        index: Condition[str] = None,
        *,
        times: int | None = None,
        **where: Unpack[SearchFields],
    ) -> Found[Search]:
        """Assert that at least one search matches, or exactly ``times`` searches; return these
        searches.

        ``where`` are conditions on fields of a search: ``command`` (``"query"``, ``"count"`` or
        ``"aggregate"``), ``filter``, ``keys`` (any of the returned keys), ``total``, ``pending``.
        If a key was not found, the failure message shows the clause that excluded the key, and the
        terms of its text.
        """
        __tracebackhide__ = True
        from .search.views import expect_search

        given: dict[str, object] = {} if index is None else {"index": index}
        given |= where
        return expect_search(self._reading, self._memory().searches, times, given)

    def assert_not_searched(
        self, index: Condition[str] = None, **where: Unpack[SearchFields]
    ) -> None:
        """Assert that no search matches."""
        __tracebackhide__ = True
        self.assert_searched(index, times=0, **where)

    def _reading(self) -> AbstractContextManager[Keyspace]:
        return self._memory().reading()

    def _memory(self) -> Engine:
        if not isinstance(self._engine, Engine):
            raise ContractError(
                "search needs the in-memory engine, but this fake runs its commands on a real server: "
                "leave out engine="
            )
        return self._engine
