"""Ask the merchant's price endpoint for variable prices, and record each answer once."""
