"""The OpenAPI document that `/docs-json` serves: FastAPI's part on requests, completed from the views and the story."""
