"""Run the command `fatura` with the deliberate break that the environment names."""

from fatura.cli import main
from tests.faults import breaks

if __name__ == "__main__":
    breaks.apply()
    main()
