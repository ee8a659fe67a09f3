"""CONFIG, apart from the scenarios: all parameters, and the password of the default user."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run


def test_every_parameter_has_a_value(run: Run) -> None:
    assert len(run("CONFIG GET *")) > 300


@pytest.mark.dialect("redis")
def test_a_password_is_the_only_one_of_the_default_user(run: Run) -> None:
    user = run.engine.users["default"]
    run("ACL SETUSER default >first")
    run("CONFIG SET requirepass second")
    assert (user.accepts(b"first"), user.accepts(b"second")) == (False, True)
    assert run.engine.users.visitor() is not user
    other = run.other(user=run.engine.users.visitor(), transport="port")
    assert other.error("GET k") == "NOAUTH Authentication required."
    assert other("AUTH second") == OK
    run("CONFIG", "SET", "requirepass", "")
    assert user.accepts(b"anything")
    assert run.engine.users.visitor() is user
    assert run.other(transport="port").error("AUTH second").startswith("ERR AUTH <password>")
