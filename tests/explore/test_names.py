"""Names of strands: what they are made of, and which names clients can have."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.explore.values.names import StrandName, actor_of

from .conftest import holds

NAMES = {
    "ann": StrandName("ann"),
    "relay/2": StrandName("relay", 2),
    "delivery1": StrandName("delivery1"),
    "delivery12/3": StrandName("delivery12", 3),
    "ann:add": StrandName("ann", 1, ":add"),
    "relay/2+add2": StrandName("relay", 2, "+add2"),
    "ann:loop": StrandName("ann", 1, ":loop"),
    "@clock": StrandName("@clock"),
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_parsed_into_its_parts_and_written_again(text: str) -> None:
    assert StrandName.of(text) == NAMES[text]
    assert str(NAMES[text]) == text


def test_tasks_and_threads_belong_to_one_start_of_a_client() -> None:
    name = StrandName.of("relay/2+add")
    assert (name.program, name.root, actor_of("relay/2+add")) == ("relay", "relay/2", "relay+add")


def test_a_client_whose_name_begins_like_that_of_a_delivery_is_none() -> None:
    assert StrandName.of("delivery3/2").is_delivery
    assert not StrandName.of("delivery_worker").is_delivery
    assert not StrandName.of("ann:delivery1").is_delivery


@pytest.mark.parametrize("name", ["", "two words", "a.b", "a,b", "a/b", "a:b", "a+b", "@clock", 3])
def test_clients_have_names_that_a_schedule_can_contain(cloud: Cloud, name: str) -> None:
    with pytest.raises(ContractError, match="is not a valid client name: pass a single word"):
        cloud.explore({name: holds})


@pytest.mark.parametrize("name", ["delivery1", "delivery23", "clock", "check"])
@pytest.mark.parametrize("argument", ["run", "workers"])
def test_a_client_cannot_have_a_name_of_the_exploration(
    cloud: Cloud, argument: str, name: str
) -> None:
    arguments: dict[str, Any] = {"run": {"ann": holds}, argument: {name: holds}}
    message = f"^'{name}' cannot be the name of a client: .* Pass the function by another name"
    with pytest.raises(ContractError, match=message):
        cloud.explore(**arguments)


def test_a_number_does_not_make_a_name_of_the_exploration(cloud: Cloud) -> None:
    def delivery() -> None: ...

    with pytest.raises(ContractError, match=r"^'delivery2' cannot be the name of a client"):
        cloud.explore([delivery, delivery])
