"""Write the table and the plots of docs/explanation/performance.md."""

import json
import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pygal  # pyright: ignore[reportMissingTypeStubs] - has no type stubs
from pygal.style import Style  # pyright: ignore[reportMissingTypeStubs] - has no type stubs

from bench.frame import Amount, Figure, Measured, Plot, Scale

DOCS = Path(__file__).parent.parent / "docs" / "explanation"
PAGE = DOCS / "performance.md"
TAKEN = Path(__file__).parent / "taken.json"
"""The stored results of all measurements. A run replaces only the results of the measurements that it takes."""
BEGIN, END = "<!-- the table: written by `make bench` -->", "<!-- end of the table -->"


def write(measured: Mapping[str, Measured], *, scale: Scale, dry: bool) -> None:
    """Print the table of `measured`. If `dry` is false, store the results, and update the page's table and plots."""
    print(_table(measured))
    if dry:
        return
    before: dict[str, Any] = json.loads(TAKEN.read_text()) if TAKEN.exists() else {}
    taken_at = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores"
    taken: dict[str, Any] = dict(before)
    suffix = " --full" if scale is Scale.FULL else ""
    taken |= {name + suffix: {"at": taken_at, "measured": asdict(each)} for name, each in measured.items()}
    TAKEN.write_text(json.dumps(taken, indent=1, sort_keys=True) + "\n")
    known = {name: msgspec.convert(each["measured"], Measured) for name, each in taken.items()}
    head, rest = PAGE.read_text().split(BEGIN)
    _, tail = rest.split(END)
    plots = "\n".join(f"![{plot.title}](plots/{plot.name}.svg)" for plot in _plots(known))
    when = "; ".join(f"{name} {taken[name]['at']}" for name in sorted(taken))
    PAGE.write_text(f"{head}{BEGIN}\n\n{_table(known)}\nTaken: {when}.\n\n{plots}\n\n{END}{tail}")


def _table(measured: Mapping[str, Measured]) -> str:
    lines = [
        "| # | measurement | ours | compared with | ratio | bound | result |",
        "|---|---|---|---|---|---|---|",
    ]
    figures: list[Figure | Amount] = [
        *(figure for each in measured.values() for figure in each.figures),
        *(amount for each in measured.values() for amount in each.amounts),
    ]
    lines += [_line(each) for each in sorted(figures, key=lambda each: each.row)]
    lines += [f"| | skipped: {reason} | | | | | |" for each in measured.values() for reason in each.left_out]
    return "\n".join(lines) + "\n"


def _line(figure: Figure | Amount) -> str:
    result = {None: "", True: "met", False: "**missed**"}[figure.holds]
    if isinstance(figure, Amount):
        value = f"{_short(figure.value)} {figure.unit}"
        return f"| {figure.row} | {figure.what} | {value} | | | {_bound(figure)} | {result} |"
    ours, theirs = statistics.median(figure.ours), statistics.median(figure.theirs)
    ratio = f"{figure.ratio:.2f} ({min(figure.ratios):.2f} to {max(figure.ratios):.2f})"
    against = f"{_short(theirs)}: {figure.against}"
    ours_cell = f"{_short(ours)} {figure.unit}"
    return (
        f"| {figure.row} | {figure.what} | {ours_cell} | {against} | {ratio} | {_bound(figure)} | {result} |"
    )


def _bound(figure: Figure | Amount) -> str:
    least = "" if figure.at_least is None else f">= {figure.at_least:,g}"
    most = "" if figure.at_most is None else f"<= {figure.at_most:,g}"
    return f"{least} {most}".strip()


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _plots(measured: Mapping[str, Measured]) -> Iterator[Plot]:
    (DOCS / "plots").mkdir(exist_ok=True)
    for each in measured.values():
        for plot in each.plots:
            _draw(plot)
            yield plot


def _draw(plot: Plot) -> None:
    style = Style(background="white", plot_background="white", font_family="sans-serif")
    chart: Any = pygal.XY(
        title=plot.title, x_title=plot.x, y_title=plot.y, style=style, width=800, height=400, js=[],
        x_label_rotation=0, logarithmic=False, include_x_axis=True, range=_range(plot), legend_at_bottom=True,
    )  # fmt: skip
    chart.x_value_formatter = _short
    for name, points in plot.lines.items():
        chart.add(name, [tuple(point) for point in points])
    (DOCS / "plots" / f"{plot.name}.svg").write_bytes(chart.render())


def _range(plot: Plot) -> tuple[float, float]:
    """Return the range of the y axis. The axis starts at zero, so that the plot does not exaggerate growth."""
    return 0, 1.1 * max(y for points in plot.lines.values() for _, y in points)
