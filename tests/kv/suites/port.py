"""``python -m tests.kv.suites.port [VERSION]``: serves a stock database port and prints its number.

It ends when its standard input ends.
"""

from __future__ import annotations

import sys

from pytest_fakecloud import Cloud


def main() -> None:
    """Serve without the limits of the vendor's plans and without a password."""
    with Cloud() as cloud:
        fake = cloud.kv_server(
            dialect="redis",
            version=sys.argv[1] if len(sys.argv) > 1 else None,
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


if __name__ == "__main__":
    main()
