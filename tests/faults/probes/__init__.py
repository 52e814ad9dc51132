"""Send requests with foreign, random and malformed input to every route."""
