import pytest
from sessions import Sessions

from pytest_fakecloud import Cloud, KVServer


@pytest.fixture
def sessions(kv_server: KVServer) -> Sessions:
    return Sessions(kv_server.client())


def test_a_session_ends_after_half_an_hour_of_silence(sessions: Sessions, fakecloud: Cloud) -> None:
    session = sessions.login("ada")
    fakecloud.clock.advance("29m")
    assert sessions.visit(session) == "ada"
    fakecloud.clock.advance("29m")
    assert sessions.visit(session) == "ada"
    fakecloud.clock.advance("31m")
    assert sessions.visit(session) is None


def test_logout_everywhere_is_one_transaction(sessions: Sessions, kv_server: KVServer) -> None:
    first, second = sessions.login("ada"), sessions.login("ada")
    assert sessions.logout_everywhere("ada") == 2
    assert sessions.visit(first) is sessions.visit(second) is None
    assert kv_server.contents() == {}
    kv_server.journal.assert_called("POST /multi-exec", times=1)


def test_a_logout_between_two_commands_is_not_undone(
    sessions: Sessions, kv_server: KVServer
) -> None:
    session = sessions.login("ada")

    def logout(*_: object) -> None:
        kv_server.execute("DEL", f"session:{session}")

    with kv_server.faults.call(logout, "before", command="SET"):
        assert sessions.visit(session) is None
    assert kv_server.value(f"session:{session}") is None


def test_a_refused_write_is_an_error_the_application_sees(
    sessions: Sessions, kv_server: KVServer
) -> None:
    kv_server.faults.respond(400, {"error": "ERR max daily request limit exceeded"}, times=1)
    with pytest.raises(Exception, match="daily request limit"):
        sessions.login("ada")
    assert kv_server.keys("session:*") == []
