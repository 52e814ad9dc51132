"""The OpenAPI document that `/docs-json` serves: FastAPI describes the requests, this package adds the answers."""
