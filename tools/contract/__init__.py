"""`make contract`: check the OpenAPI document with common linters and client generators."""
