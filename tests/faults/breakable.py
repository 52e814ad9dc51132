"""Run the command `fatura` with the mechanism disabled that an environment variable names (see `breaks`)."""

from fatura.cli import main
from tests.faults import breaks

if __name__ == "__main__":
    breaks.apply()
    main()
