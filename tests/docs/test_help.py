"""Check that ``help(pytest_fakecloud)`` shows an overview and every public class."""

from __future__ import annotations

import pydoc
import re

import pytest_fakecloud
from pytest_fakecloud.cloud.services import SERVICES, fake_class


def test_help_shows_every_fixture_and_every_class() -> None:
    text = pydoc.plain(pydoc.render_doc(pytest_fakecloud))
    description, _, rest = text.partition("PACKAGE CONTENTS")
    for service in SERVICES.values():
        assert f"{service.fixture} " in description
        assert f" {fake_class(service).__name__} " in description
    for name in pytest_fakecloud.__all__:
        is_class = isinstance(getattr(pytest_fakecloud, name), type)
        assert not is_class or re.search(rf"\b{name}\b", rest), name
