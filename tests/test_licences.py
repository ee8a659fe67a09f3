"""All licences of an installation are on the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import check_each

from .licences import Licence, closure, main, wrong_with


def test_every_licence_is_on_the_list() -> None:
    licences, missing = closure()
    assert [why for licence in licences if (why := wrong_with(licence))] == []
    names = {licence.name for licence in licences}
    # Dependencies, their dependencies, and libraries of extras.
    assert {"requests", "certifi", "numpy", "pytest", "werkzeug", "markupsafe"} <= names
    # Only extras may be missing.
    assert set(missing) <= {
        "confluent-kafka", "redis", "trustme", "cryptography", "time-machine", "hypothesis",
    }  # fmt: skip


def test_the_pins_are_the_distributions_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--pins", str(tmp_path / "made" / "pins.txt")]) == 0
    pins = (tmp_path / "made" / "pins.txt").read_text("utf-8").splitlines()
    assert pins == [f"{licence.name}=={licence.version}" for licence in closure()[0]]
    assert capsys.readouterr().out.endswith(f"all {len(pins)} licences are on the list\n")
    assert f"pytest=={pytest.__version__}" in pins


def test_which_expressions_are_on_the_list() -> None:
    def check(says: str, good: bool) -> None:
        why = wrong_with(Licence("some", "1.0", says))
        assert (why is None) is good
        assert good or "some 1.0" in str(why)

    check_each(
        check,
        [
            ("MIT", True),
            ("0BSD", True),
            ("PSF-2.0", True),
            ("ISC", True),
            ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
            ("GPL-3.0-only OR MIT", True),
            ("GPL-3.0-only AND MIT", False),
            ("GPL-3.0-only OR Proprietary AND MIT", False),
            ("MIT AND (Apache-2.0 OR LGPL-3.0-only) AND GPL-2.0-only", False),
            ("BSD-3-Clause AND Zlib", False),
            ("GPL-3.0-or-later", False),
            ("GNU General Public License (GPL)", False),
            ("MITx", False),
            ("Proprietary", False),
            ("", False),
        ],
    )


def test_what_is_allowed_besides_is_allowed_to_one_distribution() -> None:
    assert wrong_with(Licence("numpy", "2", "BSD-3-Clause AND Zlib")) is None
    assert wrong_with(Licence("numpy", "2", "BSD-3-Clause AND GPL-2.0-only")) is not None
    for broken in ("MIT OR", "(MIT AND ISC", "MIT AND OR ISC", "MIT OR ISC)", "AND MIT"):
        with pytest.raises(SyntaxError):
            wrong_with(Licence("numpy", "2", broken))
