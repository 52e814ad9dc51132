"""Fatura: a recurring-billing engine on PostgreSQL."""

__version__ = "0.1.0"
