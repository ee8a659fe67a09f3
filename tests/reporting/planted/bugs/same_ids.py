import pytest


class Library:
    def __init__(self, index):
        self.index = index

    def add(self, title, chapters):
        slug = title.lower().split()[0]
        self.index.upsert(
            [(f"{slug}-{n}", vector, {"title": title}) for n, vector in enumerate(chapters)]
        )

    def titles(self, vector):
        hits = self.index.query(vector, top_k=10, include_metadata=True)
        return {hit.metadata["title"] for hit in hits}


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_both_books_are_found(vector_index):
    library = Library(vector_index.client())
    library.add("The Odyssey", [[1.0, 0.0], [0.9, 0.1]])
    library.add("The Iliad", [[0.8, 0.2], [0.7, 0.3]])
    assert library.titles([1.0, 0.0]) == {"The Odyssey", "The Iliad"}
