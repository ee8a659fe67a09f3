"""Test the names of files that the package writes."""

from __future__ import annotations

import re

from pytest_fakecloud.core.output_files import file_name


def test_file_names_are_safe_and_stay_apart() -> None:
    assert file_name("tests/test_a.py::test_it") == "tests-test_a.py-test_it"
    assert (
        file_name("tests/test_a.py::TestIt::test_it[1-a]") == "tests-test_a.py-TestIt-test_it-1-a"
    )
    assert file_name("../../etc/passwd") == "etc-passwd"
    parameters = ["a/b", "a:b", "a-b", "a b", "é", "ü", "", "x" * 300 + "1", "x" * 300 + "2", ".."]
    names = [file_name(f"test_x.py::test_it[{parameter}]") for parameter in parameters]
    names += [file_name(f"{path}::test_it") for path in ("a/b.py", "a-b.py", "a b.py")]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 150
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)
