"""The commands of search. Each imports what it needs when it first comes: most suites never do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...reply import Reply
from ...table.registry import Args, command

if TYPE_CHECKING:
    from ...engine.engine import Session

__all__: list[str] = []


@command("SEARCH.CREATE")
def search_create(session: Session, args: Args) -> Reply:
    """Create an index of keys with certain prefixes."""
    from .definitions import create

    return create(session, args)


@command("SEARCH.DROP")
def search_drop(session: Session, args: Args) -> Reply:
    """Remove an index; its keys and aliases stay."""
    from .definitions import drop

    return drop(session, args)


@command("SEARCH.REINDEX")
def search_reindex(session: Session, args: Args) -> Reply:
    """Index all keys anew."""
    from .definitions import reindex

    return reindex(session, args)


@command("SEARCH.DESCRIBE")
def search_describe(session: Session, args: Args) -> Reply:
    """What an index is about."""
    from .definitions import describe

    return describe(session, args)


@command("SEARCH.WAITINDEXING")
def search_waitindexing(session: Session, args: Args) -> Reply:
    """Wait until all changes so far can be found."""
    from .definitions import wait_indexing

    return wait_indexing(session, args)


@command("SEARCH.LISTINDEXES")
def search_listindexes(session: Session, args: Args) -> Reply:
    """The indexes, by name."""
    from .definitions import list_indexes

    return list_indexes(session, args)


@command("SEARCH.ALIASADD")
def search_aliasadd(session: Session, args: Args) -> Reply:
    """Give an index another name, or move that name to another index."""
    from .definitions import alias_add

    return alias_add(session, args)


@command("SEARCH.ALIASDEL")
def search_aliasdel(session: Session, args: Args) -> Reply:
    """Remove an alias."""
    from .definitions import alias_del

    return alias_del(session, args)


@command("SEARCH.LISTALIASES")
def search_listaliases(session: Session, args: Args) -> Reply:
    """All aliases with the indexes they name."""
    from .definitions import list_aliases

    return list_aliases(session)


@command("SEARCH.QUERY")
def search_query(session: Session, args: Args) -> Reply:
    """The documents that a filter finds, the best first."""
    from .searches import query

    return query(session, args)


@command("SEARCH.COUNT")
def search_count(session: Session, args: Args) -> Reply:
    """How many documents a filter finds."""
    from .searches import count

    return count(session, args)


@command("SEARCH.AGGREGATE")
def search_aggregate(session: Session, args: Args) -> Reply:
    """Figures and buckets of the documents that a filter finds."""
    from .searches import aggregate

    return aggregate(session, args)
