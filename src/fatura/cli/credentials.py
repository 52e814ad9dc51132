"""Show new credentials on the terminal, or write them to a file that only its owner can read (D-208)."""

import os
import sys
from pathlib import Path

import typer

from fatura.settings import SettingsError


def show(credentials: str, *, folder: Path, name: str) -> None:
    """Print credentials if stdout is a terminal. Otherwise write them to a new file in `folder` and print its path.

    Credentials in the output of a service would get into its logs. More people can read logs than the data folder.
    Raises SettingsError if the file cannot be written.
    """
    if is_shown():
        typer.echo(f"{credentials}\nStore this now: it is not shown again.")
        return
    path = (folder / name).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(credentials + "\n")
    except OSError as error:
        message = f"cannot write new credentials to {path} ({os.strerror(error.errno or 0)}); create others with --json"
        raise SettingsError(message) from error
    typer.echo(f"The credentials are in {path}, which only you can read. Store them, then delete this file.")


def is_shown() -> bool:
    """Return whether credentials may be printed, that is, whether stdout is a terminal."""
    return sys.stdout.isatty()
