"""One package per payment provider; only `bootstrap` imports them."""
