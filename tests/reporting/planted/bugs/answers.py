import pytest


class Answers:
    """Answers questions with the document that is closest to them."""

    def __init__(self, index, queue):
        self.index, self.queue = index, queue

    def index_document(self, request):
        document = request.json()
        self.index.upsert(
            [(document["name"], document["vector"], {"text": document["text"]})],
            namespace=document["language"],
        )

    def publish(self, name, language, vector, text):
        body = {"name": name, "language": language, "vector": vector, "text": text}
        self.queue.message.publish_json(url="https://app.example.com/index", body=body)

    def answer(self, vector):
        hits = self.index.query(vector=vector, top_k=1, include_metadata=True, namespace="en")
        return hits[0].metadata["text"]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_answer_is_that_of_the_newest_document(vector_index, queue):
    answers = Answers(vector_index.client(), queue.client())
    queue.destinations.call("https://app.example.com/index", answers.index_document)
    answers.publish("opening", "en", [1.0, 0.0], "from nine")
    answers.publish("opening", "de", [0.0, 1.0], "from ten")
    queue.run_until_idle()
    assert answers.answer([1.0, 0.1]) == "from ten"
