"""Values in .env files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.standalone.commands import write_dotenv


@pytest.mark.parametrize(
    "value", ["plain", "two words", "$HOME `id` \\n", "it's", 'say "x"', "", "#"]
)
def test_a_value_is_read_as_it_was_written(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    write_dotenv(file, {"VALUE": value})
    command = f'. {file}; printf %s "$VALUE"'
    read = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert read.stdout == value


@pytest.mark.parametrize("value", ["it's $1", "'\"", "' \\", "two\nlines", "C:\\", "a\\\\b"])
def test_a_value_without_a_portable_form_is_rejected(tmp_path: Path, value: str) -> None:
    with pytest.raises(ContractError, match="VALUE cannot be written"):
        write_dotenv(tmp_path / ".env", {"VALUE": value})
