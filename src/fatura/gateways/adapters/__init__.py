"""One module per payment provider; only the bootstrap names them."""
