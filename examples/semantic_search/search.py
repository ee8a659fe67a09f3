"""Search over help articles by meaning, in a vector index."""

from collections.abc import Iterable
from dataclasses import dataclass

from upstash_vector import Index


@dataclass(frozen=True)
class Article:
    """A help article."""

    id: str
    text: str
    language: str
    views: int = 0


class HelpSearch:
    """Finds articles near to a question, in one language, popular ones only if asked."""

    def __init__(self, index: Index, namespace: str = "help") -> None:
        self._index = index
        self._namespace = namespace

    def publish(self, articles: Iterable[Article]) -> None:
        """Add articles, or replace those with the same id."""
        self._index.upsert(
            vectors=[
                (article.id, article.text, {"language": article.language, "views": article.views})
                for article in articles
            ],
            namespace=self._namespace,
        )

    def find(
        self, question: str, language: str, *, popular: bool = False, limit: int = 3
    ) -> list[str]:
        """Ids of the nearest articles, best first."""
        condition = f"language = '{language}'"
        if popular:
            condition += " AND views >= 1000"
        hits = self._index.query(
            data=question, top_k=limit, filter=condition, namespace=self._namespace
        )
        return [hit.id for hit in hits]

    def retire(self, language: str) -> int:
        """Remove all articles in a language; how many there were."""
        removed = self._index.delete(filter=f"language = '{language}'", namespace=self._namespace)
        return int(removed.deleted)
