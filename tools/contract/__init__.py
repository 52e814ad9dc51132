"""`make contract`: judge the OpenAPI document with the generators and linters that its users have."""
