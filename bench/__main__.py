"""`make bench`: run each measurement in its own process, one after another, and write the table and plots of the docs.

`python -m bench [NAME ...] [--full] [--dry]`. If names are given, the program runs only these measurements, and
replaces only their rows of the table.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict

import msgspec

from bench.frame import Measured, Options, Scale
from bench.measures import MEASURES, Measure
from bench.page import write
from fatura.observability import configure_logs


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in MEASURES))
    parser.add_argument("--full", action="store_true", help="larger, and for longer")
    parser.add_argument("--dry", action="store_true", help="print the figures, and leave the docs alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {each.name for each in MEASURES}
    if unknown:
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}")
    scale = Scale.FULL if arguments.full else Scale.SHORT
    chosen = [
        each for each in MEASURES if (each.name in arguments.names if arguments.names else not each.installs)
    ]
    if arguments.child:
        return _measure_here(chosen[0], scale)
    measured = {each.name: taken for each in chosen if (taken := _measure_apart(each, scale)) is not None}
    write(measured, scale=scale, dry=arguments.dry)
    return 0 if len(measured) == len(chosen) else 1


def _measure_here(measure: Measure, scale: Scale) -> int:
    """Run one measurement in this process, and print its result as a line of JSON."""
    configure_logs(level="error")
    began = time.monotonic()

    def log(text: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {text}", file=sys.stderr, flush=True)

    print(json.dumps(asdict(measure.load()(Options(scale, log)))))
    return 0


def _measure_apart(measure: Measure, scale: Scale) -> Measured | None:
    """Run one measurement in a child process. Return None if it failed."""
    print(f"{measure.name}: {measure.says}", file=sys.stderr, flush=True)
    words = [measure.name, "--child", *(["--full"] if scale is Scale.FULL else [])]
    ended = subprocess.run([sys.executable, "-m", "bench", *words], stdout=subprocess.PIPE, check=False)
    if ended.returncode:
        print(f"{measure.name} ended with exit code {ended.returncode}", file=sys.stderr)
        return None
    return msgspec.convert(json.loads(ended.stdout.splitlines()[-1]), Measured)


if __name__ == "__main__":
    sys.exit(main())
