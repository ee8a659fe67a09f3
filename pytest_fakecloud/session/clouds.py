"""The clouds of a pytest run: their creation, their variables, and the cloud that outlives tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .options import RunOptions, fixture_of, misuse

if TYPE_CHECKING:
    import pytest

    from ..any_cloud import AnyCloud
    from ..cloud import Cloud


def new_cloud(settings: Mapping[str, Any], delivery: Any) -> Cloud:
    """Create a cloud with the settings of a test or of the session."""
    from ..cloud import Cloud

    cloud = Cloud(
        settings["seed"],
        settings["now"],
        settings["clock"],
        settings["process_time"],
        delivery=delivery,
        transport=settings["transport"],
        tls=settings["tls"],
        share_tls_context=settings["share_tls_context"],
    )
    cloud._fixture_settings = settings
    return cloud


def publish_env(cloud: AnyCloud, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Set the variables of a cloud's fakes and of later ones; return a function that ends this.

    Call that function at the end of the test, because the cloud may outlive it.
    """
    seen: set[str] = set()

    def publish(handle: Any) -> None:
        variables = dict(handle.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)

    if cloud.authority is not None:
        _replace_default_opener(monkeypatch)
    for handle in cloud.handles:
        publish(handle)
    return cloud._on_start(publish)


def _replace_default_opener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``urlopen()`` read the variables with the certificate authority again.

    Since Python 3.12, its shared opener keeps the first TLS context. An application's own stays.
    """
    import urllib.request

    opener: Any = getattr(urllib.request, "_opener", None)
    if opener is not None:
        default: Any = urllib.request.build_opener()
        if [*map(type, opener.handlers)] == [*map(type, default.handlers)]:
            monkeypatch.setattr(urllib.request, "_opener", None)


class SessionCloud:
    """The cloud that lasts for a whole run, in this process or a server, if the run needs one.

    It returns to its baseline before each test. ``cloud`` is None until it is created.
    """

    def __init__(self, options: RunOptions) -> None:
        self.cloud: AnyCloud | None = None
        self._options = options
        self._seed: Any = "session"
        self._seed_is_given = False
        self._handles_before_test: list[Any] | None = None

    def open(self, settings: Mapping[str, Any] | None = None) -> AnyCloud:
        """Return the cloud, created on first use with the settings of the session."""
        settings = settings or {}
        if settings and self._options.url is not None:
            raise misuse(
                "the fixture fakecloud_session_settings cannot change the fakes of a stand-alone "
                "server (--fakecloud-url): start the server with these settings, and return {} from "
                "the fixture"
            )
        if self.cloud is None:
            self.cloud = self._created(settings) if self._options.url is None else self._connected()
        elif settings:
            given = {fixture_of(name): value for name, value in settings.items()}
            self.cloud._fixture_settings = {**self.cloud._fixture_settings, **given}
        return self.cloud

    def _connected(self) -> AnyCloud:
        from ..cloud import Cloud

        url = str(self._options.url)
        if self._options.is_shared(url):
            raise misuse(
                "tests of several workers (pytest -n) cannot share one stand-alone server "
                "(--fakecloud-url): each test resets the whole server, also for the other workers. "
                "Leave out -n, run with fakes in the test process, or give each worker its own server "
                "(config.option.fakecloud_url)"
            )
        return Cloud.connect(url)

    def _created(self, settings: Mapping[str, Any]) -> AnyCloud:
        self._seed_is_given = "seed" in settings
        merged = self._options.merged(self._seed, [settings])
        self._seed = merged["seed"]
        return new_cloud(merged, "background")

    def begin_test(self, item: pytest.Item) -> None:
        """Return to the baseline. Random values start over from the test's own seed."""
        options, cloud = self._options, self.cloud
        if not self._seed_is_given:
            self._seed = options.defaults["seed"] or item.nodeid
        if cloud is None:
            return
        if self._handles_before_test is not None:
            cloud._keep_only(self._handles_before_test)
            self._handles_before_test = None
        # Keep the clock mode that the server was started with, unless the suite sets one.
        cloud.begin(clock=options.defaults["clock"] if options.url is not None else None)
        cloud.reseed(self._seed)

    def begin_call(self) -> None:
        """Mark calls recorded before the test's own code, and remember the fakes that exist.

        Fakes that the test's own code starts are closed after the test.
        """
        if self.cloud is not None:
            self._handles_before_test = list(self.cloud.handles)
            for call in self.cloud.journal.calls():
                call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def close(self) -> None:
        """Close the cloud."""
        if self.cloud is not None:
            self.cloud.close()
