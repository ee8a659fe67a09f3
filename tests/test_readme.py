"""The claims of the README, besides its Python blocks, which tests/docs runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.harness import check_each

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SITE = "https://pytest-fakecloud.github.io/pytest-fakecloud/"
LINKS = re.findall(r"\]\(([^)]+)\)", README)


def test_try_it_has_exactly_two_commands_of_one_line() -> None:
    section = README.split("## Try it", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```(\w*)\n(.*?)\n```", section, re.S)
    assert [language for language, _ in blocks] == ["sh", "sh"]
    assert all("\n" not in command for _, command in blocks)
    assert "pytest examples" in blocks[0][1]
    assert blocks[1][1].endswith("pytest -n 3")


def test_links_work_wherever_the_readme_is_shown() -> None:
    assert [link for link in LINKS if not link.startswith("https://")] == []


def test_links_to_the_documentation_lead_somewhere() -> None:
    def check(link: str) -> None:
        assert (ROOT / "docs" / link.removeprefix(SITE)).with_suffix(".md").exists()

    check_each(check, zip([link for link in LINKS if link.startswith(SITE)]))


def test_pictures_are_in_the_repository() -> None:
    pictures = re.findall(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/main/([^)]+)", README)
    assert pictures
    assert [picture for picture in pictures if not (ROOT / picture).is_file()] == []


def test_the_documentation_is_where_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("urls", {}).get("Documentation", SITE) == SITE


def test_the_first_screen_shows_a_report_and_says_what_the_package_is_not() -> None:
    screen = "\n".join(README.splitlines()[:50])
    assert "emulator of AWS" in screen
    assert re.search(r"<!-- fails -->.*^The failing statement .* used .*^```$", screen, re.M | re.S)
    assert re.search(r"`fakecloud\.explore\(.+\)`", screen)


def test_the_first_install_line_has_what_the_first_tests_need() -> None:
    install = re.findall(r"```sh\n(.*?)```", README, re.S)[0]
    tests = "".join(re.findall(r"```python\n(.*?)```", README, re.S)[:2])
    needed = {"kv_server.client()": "upstash-redis", "queue.client()": "qstash"}
    assert [name for call, name in needed.items() if call in tests and name not in install] == []
