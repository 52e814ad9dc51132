"""Run the command `fatura` with the break that the environment variable FATURA_BREAK names (see `breaks`)."""

from fatura.cli import main
from tests.faults import breaks

if __name__ == "__main__":
    breaks.apply()
    main()
