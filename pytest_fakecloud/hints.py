"""Why a request never reached its fake: interception libraries that were in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cloud import Cloud

__all__ = ["hints"]

_RECIPES = {
    "responses": (
        ("requests.exceptions", "ConnectionError"),
        "Connection refused by Responses",
        "let it through with responses.add_passthru({name}.url)",
    ),
    "respx": (
        ("respx.models", "AllMockedAssertionError"),
        "",
        'let it through with respx.route(host="127.0.0.1").pass_through()',
    ),
    "pytest-httpx": (
        ("httpx", "TimeoutException"),
        "No response can be found for",
        "let it through with @pytest.mark.httpx_mock("
        'should_mock=lambda request: request.url.host != "127.0.0.1")',
    ),
    "requests-mock": (
        ("requests_mock.exceptions", "NoMockAddress"),
        "",
        "let it through with requests_mock.Mocker(real_http=True)",
    ),
    "VCR.py": (
        ("vcr.errors", "CannotOverwriteExistingCassetteException"),
        "",
        "let it through with vcr.VCR(ignore_localhost=True)",
    ),
    "pytest-socket": (
        ("pytest_socket", "SocketBlockedError"),
        "",
        "allow loopback with @pytest.mark.enable_socket, or --allow-hosts=127.0.0.1 in place of "
        "--disable-socket",
    ),
    "pytest-socket (hosts)": (
        ("pytest_socket", "SocketConnectBlockedError"),
        "",
        "allow loopback with --allow-hosts=127.0.0.1, or @pytest.mark.allow_hosts(['127.0.0.1'])",
    ),
}


def hints(cloud: Cloud, error: BaseException) -> list[str]:
    """What stood between the test and its fakes, and how to let requests through."""
    found = []
    for one in _chain(error):
        for library, ((module, name), text, recipe) in _RECIPES.items():
            kinds = {(kind.__module__, kind.__name__) for kind in type(one).__mro__}
            if (module, name) not in kinds or text not in str(one):
                continue
            tool = library.partition(" (")[0]
            seen = str(getattr(getattr(one, "failed_request", None), "uri", "")) or str(one)
            named = [handle for handle in cloud.handles if handle.url in seen]
            for handle in named:
                found.append(
                    f"{tool} kept a request from {handle.name}: {recipe.format(name=handle.name)}"
                )
            if not named and tool == "pytest-socket":
                found.append(f"{tool} kept the test from its fakes: {recipe}")
    return list(dict.fromkeys(found))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        waiting += [arg for arg in one.args if isinstance(arg, BaseException)]
