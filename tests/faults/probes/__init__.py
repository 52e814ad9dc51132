"""Send ids of other accounts, random ids and malformed requests to every route."""
