"""A first call to a fake, as code for the official clients: what the console shows under *Connect*."""

from __future__ import annotations

from string import Template
from typing import Any, NamedTuple


class _Program(NamedTuple):
    """A program in which ``$client`` stands for a client that reads the variables of a fake itself, or,
    for a fake with a name of its own, for one that is given the variables with ``$prefix``.
    """

    text: str
    client: str
    client_of_named: str = ""
    """Empty if it is the same."""


class FirstCall(NamedTuple):
    """What the call does, its bare request, and programs of the official clients by language."""

    does: str
    target: str
    body: Any
    programs: dict[str, _Program]

    def texts(self, prefix: str) -> dict[str, str]:
        """Return the programs by language, for the variables with a prefix."""
        return {language: _text(program, prefix) for language, program in self.programs.items()}


def _text(program: _Program, prefix: str) -> str:
    client = (program.client_of_named if prefix else "") or program.client
    text = Template(program.text).substitute(client=Template(client).substitute(prefix=prefix))
    return f"import os\n\n{text}" if "os.environ" in client else text


def first_call(fixture: str) -> FirstCall:
    """Return the first call to a fake of a service."""
    return _FIRST[fixture]


_FIRST = {
    "kv_server": FirstCall(
        "Store a value and read it",
        "/pipeline",
        [["SET", "greeting", "hello"], ["GET", "greeting"]],
        {
            "JavaScript": _Program(
                'import { Redis } from "@upstash/redis";\n\n'
                "const redis = $client;\n"
                'await redis.set("greeting", "hello");\n'
                'console.log(await redis.get("greeting"));\n',
                "Redis.fromEnv()",
                "new Redis({ url: process.env.${prefix}UPSTASH_REDIS_REST_URL, "
                "token: process.env.${prefix}UPSTASH_REDIS_REST_TOKEN })",
            ),
            "Python": _Program(
                "from upstash_redis import Redis\n\n"
                "redis = $client\n"
                'redis.set("greeting", "hello")\n'
                'print(redis.get("greeting"))\n',
                "Redis.from_env()",
                'Redis(url=os.environ["${prefix}UPSTASH_REDIS_REST_URL"], '
                'token=os.environ["${prefix}UPSTASH_REDIS_REST_TOKEN"])',
            ),
        },
    ),
    "vector_index": FirstCall(
        "Upsert a vector and query",
        "/upsert",
        {"id": "first", "vector": [0.1, 0.2], "metadata": {"kind": "demo"}},
        {
            "JavaScript": _Program(
                'import { Index } from "@upstash/vector";\n\n'
                "const index = $client;\n"
                'await index.upsert({ id: "first", vector: [0.1, 0.2], metadata: { kind: "demo" } });\n'
                "console.log(await index.query({ vector: [0.1, 0.2], topK: 1 }));\n",
                "new Index()",
                "new Index({ url: process.env.${prefix}UPSTASH_VECTOR_REST_URL, "
                "token: process.env.${prefix}UPSTASH_VECTOR_REST_TOKEN })",
            ),
            "Python": _Program(
                "from upstash_vector import Index\n\n"
                "index = $client\n"
                'index.upsert([("first", [0.1, 0.2], {"kind": "demo"})])\n'
                "print(index.query([0.1, 0.2], top_k=1))\n",
                "Index.from_env()",
                'Index(url=os.environ["${prefix}UPSTASH_VECTOR_REST_URL"], '
                'token=os.environ["${prefix}UPSTASH_VECTOR_REST_TOKEN"])',
            ),
        },
    ),
    "queue": FirstCall(
        "Publish a message to your application",
        "/v2/publish/http://127.0.0.1:3000/hook",
        {"hello": "world"},
        {
            "JavaScript": _Program(
                'import { Client } from "@upstash/qstash";\n\n'
                "const client = $client;\n"
                'console.log(await client.publishJSON({ url: "http://127.0.0.1:3000/hook", '
                'body: { hello: "world" } }));\n',
                "new Client({ baseUrl: process.env.${prefix}QSTASH_URL, "
                "token: process.env.${prefix}QSTASH_TOKEN })",
            ),
            "Python": _Program(
                "from qstash import QStash\n\n"
                "client = $client\n"
                'print(client.message.publish_json(url="http://127.0.0.1:3000/hook", '
                'body={"hello": "world"}))\n',
                'QStash(os.environ["${prefix}QSTASH_TOKEN"], '
                'base_url=os.environ["${prefix}QSTASH_URL"])',
            ),
        },
    ),
    "broker": FirstCall(
        "Produce a record", "/produce", {"topic": "orders", "value": "one kettle"}, {}
    ),
}  # fmt: skip
