"""What an operator asks of a running engine: health, lag, call counts, and `fatura check`."""
