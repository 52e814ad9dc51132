"""Run the command `fatura` with one mechanism disabled, which an environment variable names (see `breaks`)."""

from fatura.cli import main
from tests.faults import breaks

if __name__ == "__main__":
    breaks.apply()
    main()
