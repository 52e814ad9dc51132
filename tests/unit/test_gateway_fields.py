"""`fatura gateway` reads values from the command line and from files (D-259)."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from fatura.cli.client import ApiError
from fatura.cli.gateway import fields

FIELDS: list[dict[str, Any]] = [
    {"name": "token", "description": "your token", "type": "text", "required": True, "secret": True},
    {"name": "user", "description": "your user", "type": "text", "required": False, "secret": False},
    {"name": "methods", "description": "methods", "type": "list", "required": False, "secret": False},
]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


def _refused(*texts: str) -> str:
    with pytest.raises(ApiError) as refused:
        fields.collect(FIELDS, texts)
    return str(refused.value)


@pytest.mark.parametrize("content", [b"secret", b"secret\r\n", b"\xef\xbb\xbfsecret\n"])
def test_a_secret_is_read_without_its_line_end(tmp_path: Path, content: bytes) -> None:
    """Some editors write a mark of the byte order at the start of a file. [D-259]"""
    file = tmp_path / "token"
    file.write_bytes(content)

    assert fields.collect(FIELDS, [f"token=@{file}", 'methods=["pix"]']) == {
        "token": "secret",
        "methods": ["pix"],
    }


def test_only_small_regular_files_are_read(tmp_path: Path) -> None:
    """[D-259]"""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * (fields.MAX_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"secret\xff")

    for path in "/dev/zero", tmp_path, tmp_path / "fifo":
        assert _refused(f"token=@{path}") == f"cannot read {path}: it is no regular file"
    assert "is larger than 65,536 bytes" in _refused(f"token=@{tmp_path / 'large'}")
    assert _refused(f"token=@{tmp_path / 'binary'}").endswith("is not in UTF-8")


@pytest.mark.parametrize("text", ["mysecret", "mysecret==", "=mysecret", "tokn=mysecret", "token=mysecret"])
def test_an_error_does_not_repeat_a_secret(text: str) -> None:
    """[D-259]"""
    assert "mysecret" not in _refused(text)


def test_wrong_values_are_named() -> None:
    """[D-259]"""
    assert _refused("user=a", "user=b") == "--set user is given twice"
    assert _refused("methods=pix") == 'methods must be JSON of the type list, such as ["pix"]'
    assert _refused().endswith("\n  --set token=@FILE  your token")


def test_all_fields_are_asked_for_if_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unprintable characters of a provider are escaped. An optional value may stay empty. [D-259]"""
    prompts: list[str] = []

    def prompt(text: str, **options: Any) -> str:
        prompts.append(text)
        return "new" if options["default"] is None else ""

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", prompt)
    asked = [FIELDS[0] | {"description": "a\x1b[2J\nb"}, *FIELDS[1:]]

    assert fields.collect(asked, [], with_optional=True) == {"token": "new"}
    assert prompts == [r"token (a\x1b[2J\nb)", "user (your user)", "methods (methods)"]
