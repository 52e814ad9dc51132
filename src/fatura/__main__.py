"""`python -m fatura` is the command `fatura`."""

from fatura.cli import main

if __name__ == "__main__":
    main()
