"""One package for each payment provider; only `bootstrap` imports them."""
