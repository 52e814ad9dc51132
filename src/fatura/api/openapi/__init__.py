"""The OpenAPI document that `/docs-json` serves. FastAPI describes requests; views and samples add the answers."""
