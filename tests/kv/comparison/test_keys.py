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
