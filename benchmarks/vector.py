"""The vector index compared with numpy's product, werkzeug and other test libraries.

Run ``python -m benchmarks.vector``; ``--quick`` leaves out the large sets. Missing libraries
(qdrant-client, chromadb, faiss-cpu) are skipped. chromadb is measured up to 10,000 rows, because it
takes minutes to fill with 100,000 vectors of 1536 numbers.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.similarity import dense
from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.fake import VectorIndex
from pytest_fakecloud.vector.model import Include, VectorQuery, VectorRecord

from .raw import raw_server
from .timing import compare, line

TOP_K = 10
SAME_HITS = json.dumps(
    {"result": [{"id": str(row), "score": 0.5} for row in range(TOP_K)]}
).encode()
CHROMA_ROWS = 10_000
ROWS = 10_000
"""Number of rows for filters and for queries over HTTP."""
GROWN = 1_000_000
SIZES = ((10_000, 128), (10_000, 768), (100_000, 1536))
Call = Callable[[], object]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the large sets")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size[0] < 100_000 or not arguments.quick]
    results = [
        *(held for rows, size in sizes for held in queries(rows, size, arguments.rounds)),
        *filtered(arguments.rounds),
        *upserts(min(GROWN, 100_000) if arguments.quick else GROWN),
        *over_http(arguments.rounds),
        *upsert_over_http(arguments.rounds),
        *start_up(arguments.rounds),
    ]
    return 0 if all(results) else 1


# -- engine queries ------------------------------------------------------------------------------


def queries(rows: int, dimension: int, rounds: int) -> Iterator[bool]:
    """Compare one query, and sixteen in one request, with the product alone and with other
    libraries.
    """
    vectors, query_vectors = random_vectors(rows, dimension), random_vectors(16, dimension)
    engine = filled_engine(vectors)
    single = [VectorQuery(vector=query_vectors[0], top_k=TOP_K, include=Include())]
    sixteen = [
        VectorQuery(vector=vector, top_k=TOP_K, include=Include()) for vector in query_vectors
    ]
    query = query_vectors[0]

    def bare() -> object:
        scores = vectors @ query
        return np.argpartition(scores, rows - TOP_K)[rows - TOP_K :]

    calls: dict[str, Call] = {"numpy": bare, "engine": lambda: engine.query("", single)}
    if rows * dimension <= dense.ONE_THREAD:
        # The engine does not use several threads here, because on a busy processor they wait for
        # each other: a product of 0.1 ms then takes up to 8 ms.
        def alone() -> object:
            scores = dense._product(vectors, query)
            return np.argpartition(scores, rows - TOP_K)[rows - TOP_K :]

        calls["numpy, one thread"] = alone
    calls["engine x16"] = lambda: engine.query("", sixteen)
    for name, make in PEERS.items():
        if name == "chromadb" and rows > CHROMA_ROWS:
            print(f"skip chromadb at {rows} rows: filling it takes minutes")
            continue
        peer = attempt(name, lambda make=make: make(vectors, query))  # type: ignore[misc]
        if peer is not None:
            calls[name] = peer
    table = compare(calls, rounds=rounds, slice_ms=60)
    print(table)
    at = f"{rows} x {dimension}"
    limit = 1.3 if dimension >= 768 else 2.6
    yield line(
        f"query at {at} against product and selection", table.ratio("engine", "numpy"), limit
    )
    if "numpy, one thread" in calls:
        alone_ratio = table.ratio("numpy, one thread", "numpy")
        line(f"product and selection at {at} in one thread, against several", alone_ratio)
    if "qdrant" in calls:
        faster = table.ratio("qdrant", "engine")
        yield line(f"qdrant local against query at {at}", faster, at_least=10)
    if "faiss" in calls:
        yield line(f"query at {at} against faiss flat", table.ratio("engine", "faiss"), 1.0)
    if "chromadb" in calls:
        line(f"chromadb ephemeral against query at {at}", table.ratio("chromadb", "engine"))
    gain = 16 / table.ratio("engine x16", "engine")
    needed = 3 if rows >= 100_000 and dimension >= 768 else None
    yield line(f"gain per query in a batch of 16 at {at}", gain, at_least=needed)


def filtered(rounds: int) -> Iterator[bool]:
    """Compare a condition that one record in ten meets with no condition."""
    vectors = random_vectors(ROWS, 768)
    engine = filled_engine(vectors, metadata=lambda row: {"group": row % 10, "name": f"n{row}"})
    query = random_vectors(1, 768)[0]
    plain = [VectorQuery(vector=query, top_k=TOP_K)]
    tenth = [VectorQuery(vector=query, top_k=TOP_K, filter="group = 3")]
    rare = [VectorQuery(vector=query, top_k=TOP_K, filter="name = 'n77'")]
    table = compare(
        {
            "plain": lambda: engine.query("", plain),
            "10 %": lambda: engine.query("", tenth),
            "one record": lambda: engine.query("", rare),
        },
        rounds=rounds,
    )
    print(table)
    yield line(f"filter that 10 % meet at {ROWS} x 768", table.ratio("10 %", "plain"), 2.0)
    line(f"filter that one record meets at {ROWS} x 768", table.ratio("one record", "plain"))


def upserts(most: int) -> Iterator[bool]:
    """Measure the mean cost of an upsert while the index grows, by decade; the best of three times.

    One interruption of ten milliseconds would double the cost of the first thousand.
    """
    vectors = random_vectors(1000, 32)
    decades = [10**power for power in range(3, 7) if 10**power <= most]

    def grow() -> list[float]:
        engine = VectorEngine(Timekeeper(), Ids(0), dimension=32)
        costs, done = [], 0
        for decade in decades:
            started = time.perf_counter()
            for row in range(done, decade):
                engine.upsert("", [VectorRecord(str(row), vectors[row % 1000])])
            costs.append((time.perf_counter() - started) / (decade - done))
            done = decade
        return costs

    costs = [min(costs) for costs in zip(*(grow() for _ in range(3)), strict=True)]
    for decade, cost in zip(decades, costs, strict=True):
        print(f"upsert of one, up to {decade} rows: {cost * 1e6:.2f} us each")
    yield line(f"dearest against cheapest decade up to {most} rows", max(costs) / min(costs), 2.0)


# -- over HTTP -----------------------------------------------------------------------------------


def over_http(rounds: int) -> Iterator[bool]:
    """Compare the official client against this server with the same application behind werkzeug.

    A client that encodes 768 numbers is busy longer than any server: a raw socket and werkzeug,
    both with immediate answers, have a ratio of about 0.5, and the product is the same work for
    both. So the limit applies to what each server adds to the *floor*, which is the client's own
    work and numpy's product behind a raw socket.
    """
    if attempt("upstash-vector", lambda: __import__("upstash_vector")) is None:
        return
    with ExitStack() as stack:
        index = stack.enter_context(VectorIndex(Context.alone(), dimension=768))
        vectors = random_vectors(ROWS, 768)
        index._engine.upsert(
            "", [VectorRecord(str(row), vector) for row, vector in enumerate(vectors)]
        )
        query = [float(value) for value in random_vectors(1, 768)[0]]
        query_vector = np.asarray(query, np.float32)
        servers = {
            "hub": index.url,
            "werkzeug": stack.enter_context(stock_werkzeug(index._app.respond)),
            "floor": stack.enter_context(raw_answers(lambda: vectors @ query_vector)),
            "at once, raw": stack.enter_context(raw_answers(lambda: None)),
            "at once, werkzeug": stack.enter_context(stock_werkzeug(lambda _: Answer(SAME_HITS))),
        }
        calls: dict[str, Call] = {
            name: partial(index.client(url=url).query, vector=query, top_k=TOP_K)
            for name, url in servers.items()
        }
        for name in ("hub", "werkzeug"):
            calls[f"{name}, empty call"] = index.client(url=servers[name]).list_namespaces
        table = compare(calls, rounds=rounds, slice_ms=60)
    print(table)
    line(
        f"query by the official client at {ROWS} x 768, hub against werkzeug",
        table.ratio("hub", "werkzeug"),
    )
    line(
        "the same, by servers that answer it at once",
        table.ratio("at once, raw", "at once, werkzeug"),
    )
    floor = table["floor"].best
    added = (table["hub"].best - floor) / (table["werkzeug"].best - floor)
    yield line("what the hub adds to client and product, against werkzeug", added, 0.5)
    ratio = table.ratio("hub, empty call", "werkzeug, empty call")
    yield line("empty call by the official client, hub against werkzeug", ratio, 0.5)


@contextmanager
def raw_answers(work: Call) -> Iterator[str]:
    """Answer every request on a raw socket with the same hits, after doing the work."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    reply %= len(SAME_HITS), SAME_HITS

    def serve(sock: socket.socket) -> None:
        came = b""
        while data := sock.recv(1 << 20):
            came += data
            head, _, rest = came.partition(b"\r\n\r\n")
            size = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            if size and len(rest) == int(size):
                came = b""
                work()
                sock.sendall(reply)

    with raw_server(serve) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def stock_werkzeug(app: Callable[[Request], object]) -> Iterator[str]:
    """Run an application behind werkzeug's threaded server with its defaults, without its log."""
    import werkzeug
    from werkzeug.serving import make_server

    @werkzeug.Request.application
    def wsgi(request: werkzeug.Request) -> werkzeug.Response:
        headers = list(request.headers.items())
        answer = app(Request(request.method, request.full_path, headers, request.get_data()))
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        return werkzeug.Response(answer.body, answer.status, content_type="application/json")

    log = logging.getLogger("werkzeug")
    nowhere = logging.StreamHandler(io.StringIO())
    log.addHandler(nowhere)
    log.setLevel(logging.INFO)
    server = make_server("127.0.0.1", 0, wsgi, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        log.removeHandler(nowhere)


def upsert_over_http(rounds: int) -> Iterator[bool]:
    """Compare the server's cost of an upsert of 1536 numbers with the client's own encoding."""
    with VectorIndex(Context.alone(), dimension=1536) as index:
        vector = [float(value) for value in random_vectors(1, 1536)[0].astype(np.float64)]
        payload = {"id": "a", "vector": vector}
        body = json.dumps(payload).encode()
        headers = list(index.headers.items())

        def serve() -> object:
            answer = index._app.respond(Request("POST", "/upsert", headers, body))
            index.journal.clear()
            return answer

        table = compare({"encode": lambda: json.dumps(payload), "serve": serve}, rounds=rounds)
        print(table)
        ratio = table.ratio("serve", "encode")
        yield line("upsert of 1536 numbers, server against the client's encoding", ratio, 0.15)


def start_up(rounds: int) -> Iterator[bool]:
    """Measure the lifetime of a fixture in milliseconds, and imports in processes of their own, in
    turns.
    """
    context = Context.alone()

    def life() -> None:
        VectorIndex(context, dimension=768).close()

    table = compare(
        {"mount and close": life, "a millisecond": lambda: time.sleep(0.001)}, rounds=rounds
    )
    print(table)
    ratio = table.ratio("mount and close", "a millisecond")
    yield line("mount and close, in milliseconds", ratio, 5.0)
    modules = {
        "ours": "pytest_fakecloud.vector.fake",
        "qdrant": "qdrant_client",
        "chromadb": "chromadb",
    }
    best: dict[str, float] = {}
    for _ in range(3):
        for name, module in list(modules.items()):
            started = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
            taken = time.perf_counter() - started
            if done.returncode:
                print(f"skip {name}: it cannot be imported")
                del modules[name]
            else:
                best[name] = min(taken, best.get(name, taken))
    for name, limit in (("qdrant", 0.25), ("chromadb", 0.35)):
        if name in best:
            yield line(f"start and import against {name}", best["ours"] / best[name], limit)


# -- data and peers ------------------------------------------------------------------------------


def random_vectors(rows: int, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return unit vectors of a fixed seed."""
    generator = np.random.default_rng(rows + dimension)
    vectors = generator.standard_normal((rows, dimension), np.float32)
    unit: np.ndarray[Any, np.dtype[np.float32]]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def filled_engine(
    vectors: np.ndarray[Any, np.dtype[np.float32]],
    metadata: Callable[[int], dict[str, object]] | None = None,
) -> VectorEngine:
    """Return an engine that contains the rows under their numbers."""
    engine = VectorEngine(Timekeeper(), Ids(0), dimension=vectors.shape[1])
    for row, vector in enumerate(vectors):
        values = metadata(row) if metadata else None
        engine.upsert("", [VectorRecord(str(row), vector, metadata=values)])
    return engine


def attempt(name: str, make: Callable[[], Any]) -> Any:
    """Return the result of ``make``; print a line and return None if the library is not installed."""
    try:
        return make()
    except ImportError as error:
        print(f"skip {name}: {error}")
        return None


def qdrant(vectors: Any, query: Any) -> Call:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    size = vectors.shape[1]
    params = models.VectorParams(size=size, distance=models.Distance.COSINE)
    client.create_collection("c", vectors_config=params)
    for start in range(0, len(vectors), 5000):
        chunk = vectors[start : start + 5000]
        client.upload_collection("c", vectors=chunk, ids=range(start, start + len(chunk)))
    return lambda: client.query_points("c", query=query, limit=TOP_K)


def chromadb(vectors: Any, query: Any) -> Call:
    import chromadb as chroma

    client = chroma.EphemeralClient(chroma.Settings(anonymized_telemetry=False))
    name = f"c{vectors.shape[0]}x{vectors.shape[1]}"
    collection = client.create_collection(name, metadata={"hnsw:space": "cosine"})
    for start in range(0, len(vectors), 5000):
        chunk = vectors[start : start + 5000]
        collection.add(ids=[str(start + row) for row in range(len(chunk))], embeddings=chunk)
    return lambda: collection.query(query_embeddings=query[None], n_results=TOP_K)


def faiss(vectors: Any, query: Any) -> Call:
    """Return a query of faiss' exact inner product index with its default number of threads."""
    import faiss as library

    index = library.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda: index.search(query[None], TOP_K)


PEERS: dict[str, Callable[[Any, Any], Call]] = {
    "qdrant": qdrant,
    "chromadb": chromadb,
    "faiss": faiss,
}

if __name__ == "__main__":
    sys.exit(main())
