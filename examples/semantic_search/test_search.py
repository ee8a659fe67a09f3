import pytest
from search import Article, HelpSearch

from pytest_fakecloud import VectorIndex

pytestmark = pytest.mark.fakecloud(vector_index={"dimension": 256, "embedding": True})

ARTICLES = [
    Article("reset", "How to reset a forgotten password", "en", views=5000),
    Article("invoice", "Where to find the invoice for an order", "en", views=120),
    Article("delivery", "Track the delivery of an order", "en", views=3000),
    Article("passwort", "Ein vergessenes Passwort neu setzen", "de"),
]


@pytest.fixture
def search(vector_index: VectorIndex) -> HelpSearch:
    help_search = HelpSearch(vector_index.client())
    help_search.publish(ARTICLES)
    return help_search


def test_the_nearest_article_comes_first(search: HelpSearch) -> None:
    assert search.find("I forgot my password", "en")[0] == "reset"
    assert search.find("find my invoice", "en", limit=1) == ["invoice"]


def test_other_languages_and_unpopular_articles_are_left_out(
    search: HelpSearch, vector_index: VectorIndex
) -> None:
    assert search.find("Passwort vergessen", "de") == ["passwort"]
    assert set(search.find("order", "en", popular=True)) == {"reset", "delivery"}
    vector_index.assert_queried(filter="language = 'en' AND views >= 1000", times=1)


def test_publishing_again_replaces(search: HelpSearch, vector_index: VectorIndex) -> None:
    search.publish([Article("reset", "Passkeys instead of passwords", "en", views=1)])
    assert len(vector_index.vectors("help")) == 4
    vector_index.assert_upserted("reset", metadata={"language": "en", "views": 1})


def test_a_fresh_article_may_not_be_searchable_yet(
    search: HelpSearch, vector_index: VectorIndex
) -> None:
    with vector_index.holding():
        search.publish([Article("refund", "How to get a refund", "en")])
        assert "refund" not in search.find("refund", "en")
    assert search.find("refund", "en", limit=1) == ["refund"]


def test_a_language_can_be_retired(search: HelpSearch, vector_index: VectorIndex) -> None:
    assert search.retire("en") == 3
    assert [vector["id"] for vector in vector_index.vectors("help")] == ["passwort"]
