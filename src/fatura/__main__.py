"""Run the command `fatura` as `python -m fatura`."""

from fatura.cli import main

if __name__ == "__main__":
    main()
