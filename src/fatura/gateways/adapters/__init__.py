"""One package for each payment provider; only `fatura.providers` imports them."""
