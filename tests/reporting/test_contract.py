"""The functions of services that reports call; mypy checks their types."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pytest_fakecloud.cloud.services import SERVICES, Service
from pytest_fakecloud.reporting.contract import ReportFunctions, functions_of


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.fixture)
def test_each_service_has_functions(service: Service) -> None:
    functions = functions_of(service.fixture)
    assert functions is not functions_of("unknown")
    assert service.word is None or functions is functions_of(service.word)
    assert bool(functions.findings) <= bool(functions.sentences)


@pytest.mark.parametrize("name", [field.name for field in fields(ReportFunctions)])
def test_a_service_needs_each_function(name: str) -> None:
    default = getattr(functions_of("unknown"), name)
    assert any(getattr(functions_of(fixture), name) is not default for fixture in SERVICES)
