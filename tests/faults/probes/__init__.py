"""Request every route with foreign, random and malformed input."""
