"""The command `fatura`, in a process that applies the deliberate break which the environment names first."""

from fatura.cli import main
from tests.faults import breaks

if __name__ == "__main__":
    breaks.apply()
    main()
