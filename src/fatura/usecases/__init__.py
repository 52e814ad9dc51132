"""The use cases, one package for each capability. They open transactions and call `domain`, `store` and gateways."""
