"""Which words of a line are keys: as real servers tell, for every command with a template."""

from __future__ import annotations

import pytest

from .faces import InProcess
from .generate import Generator
from .servers import RealServer, available
from .templates import TEMPLATES
from .wire import Error

pytestmark = pytest.mark.slow
EACH = 6
"""Lines a template makes."""


@pytest.mark.parametrize(("name", "binary"), available())
def test_keys_are_those_of_a_real_server(name: str, binary: str) -> None:
    """Permissions, prefixes in a shared engine and cluster slots stand on these places."""
    server, face, generator = RealServer(name, binary), InProcess(), Generator(3, broken=0)
    compared = 0
    try:
        for templates in TEMPLATES.values():
            for line in (generator.line(each) for each in templates for _ in range(EACH)):
                asked = [b"COMMAND", b"GETKEYS", *line]
                theirs = server.call(asked)
                if not isinstance(theirs, Error):
                    assert face.call(asked) == theirs, line
                    compared += 1
    finally:
        server.close()
        face.close()
    assert compared > 500


@pytest.mark.parametrize(("name", "binary"), [one for one in available() if one[0] == "redis"])
def test_the_stock_dialect_has_the_parameters_and_commands_of_its_version(
    name: str, binary: str
) -> None:
    """What it announces is how it answers: 7.0, and not what came with 7.2."""
    server, face = RealServer(name, binary), InProcess()
    try:
        if not server.version.startswith("7.0"):
            pytest.skip(f"the stock dialect is 7.0, this server {server.version}")
        theirs, ours = (one.call([b"CONFIG", b"GET", b"*"])[::2] for one in (server, face))
        assert sorted(ours) == sorted(theirs)
        missing = {*server.call([b"COMMAND", b"LIST"])} - {*face.call([b"COMMAND", b"LIST"])}
        # CLUSTER is refused whole, as a server without cluster mode refuses it.
        assert {one for one in missing if not one.startswith(b"cluster|")} == set()
        for one in (server, face):
            one.call([b"RPUSH", b"l", b"a"])
            assert one.call([b"OBJECT", b"ENCODING", b"l"]) == b"quicklist"
    finally:
        server.close()
        face.close()
