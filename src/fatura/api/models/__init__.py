"""What answers look like, for the OpenAPI document alone: the answers themselves are `fatura.views`."""
