"""``python -m tests.kv.suites.port``: serves a stock database port and prints its number.

It ends when its standard input ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pytest_fakecloud import Cloud


def main() -> None:
    """Serve without the limits of the vendor's plans and without a password."""
    options = argparse.ArgumentParser(prog="python -m tests.kv.suites.port", description=__doc__)
    options.add_argument("version", nargs="?", help="the server's version")
    options.add_argument(
        "--nodes",
        nargs="*",
        default=[],
        type=int,
        metavar="PORT",
        help="serve a cluster: the port of each node, first those of primaries",
    )
    chosen = options.parse_args()
    nodes: list[int] = chosen.nodes
    with Cloud() as cloud:
        fake = cloud.kv_server(
            dialect="redis",
            version=chosen.version,
            cluster=_cluster(nodes),
            database_port=nodes[0] if nodes else None,
            node_ports=nodes[1:],
            modules=["ReJSON"],
            debug_command=True,
            max_request_size=None,
            max_key_size=None,
            max_record_size=None,
            max_data_size=None,
            max_connections=None,
        )
        fake.execute("ACL", "SETUSER", "default", "nopass")
        print(fake.database_url.rpartition(":")[2], flush=True)
        sys.stdin.read()


def _cluster(nodes: Sequence[int]) -> bool | int:
    """Return the setting for this number of nodes, of which half are replicas if there are several."""
    return len(nodes) // 2 if len(nodes) > 1 else bool(nodes)


if __name__ == "__main__":
    main()
