"""Commands print markup in text from outside as plain text, and escape control characters."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fatura.cli import app
from fatura.cli.event_stream import StreamEvent
from fatura.cli.listen.event_lines import EventLines
from fatura.cli.listen.forwarding import Post
from fatura.cli.output import add_row, table
from tests.support.fatura_processes import environment, run

HOSTILE = "[bold red]Ana[/] [/nothing] \x1b[2J\x9b31m\u202egpj.exe\r"
SHOWN = r"[bold red]Ana[/] [/nothing] \x1b[2J\x9b31m\u202egpj.exe\r"


def test_tables_show_markup_and_control_characters_as_text() -> None:
    """[D-219]"""
    out = io.StringIO()
    names = table("name")
    add_row(names, f"{HOSTILE}\nsecond line")
    Console(file=out, width=200, force_terminal=True, color_system="truecolor").print(names)
    assert SHOWN in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert "second line" in out.getvalue()


def test_tables_cut_no_ids() -> None:
    """[D-243]"""
    out, ids = io.StringIO(), [f"019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f0{digit}" for digit in range(3)]
    charges = table("account", "charge", "invoice")
    add_row(charges, *ids)
    Console(file=out, width=80).print(charges)
    columns = zip(
        *(line.split("│")[1:-1] for line in out.getvalue().splitlines() if "│" in line), strict=True
    )
    assert ["".join(map(str.strip, column)) for column in columns] == ids


def test_an_error_shows_a_path_as_it_is(tmp_path: Path) -> None:
    """[D-219, D-47]"""
    folder = tmp_path / "[bold red]x[" / "\x1b[31m"
    refused = run("check", "--data-dir", str(folder), env=environment())
    assert refused.returncode == 1
    assert r"/[bold red]x[/\x1b[31m: " in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "\x1b" not in refused.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_listen_shows_events_and_errors_as_they_are(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """[D-219, D-120]"""
    lines = EventLines(as_json=as_json, skip_failures=False)
    lines.report(StreamEvent("id", 7, HOSTILE), Post(1, None, 3, HOSTILE))
    lines.print_note(HOSTILE)
    written = capsys.readouterr()
    for text in (written.out, written.err):
        assert text.count("\n") == 1
        assert text.removesuffix("\n").isprintable()
    assert written.err == f"{SHOWN}\n"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a\u202eb", "a\u200bb"])
def test_accounts_have_no_name_with_unsafe_characters(name: str) -> None:
    """[D-218]"""
    refused = CliRunner().invoke(app, ["account", "create", name, "--mode", "live"])
    assert refused.exit_code == 2
    assert "control or invisible" in refused.output
