"""Write the pages of the docs that are generated from the code (`make docs`)."""

import sys
from pathlib import Path

from fatura.reference import PAGES

ROOT = Path(__file__).resolve().parent.parent


def stale(root: Path = ROOT) -> dict[str, str]:
    """Return the new text of each outdated page, by path."""
    printed = {path: page() for path, page in PAGES.items()}
    return {path: text for path, text in printed.items() if not _says(root / path, text)}


def _says(path: Path, text: str) -> bool:
    return path.exists() and path.read_text("utf-8") == text


def main() -> None:
    for path, text in stale().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, "utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
