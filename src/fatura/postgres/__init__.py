"""PostgreSQL for people who have none: `start` a server over a data folder, use its `url`, `stop` it."""

from fatura.postgres.failure import EmbeddedPostgresError
from fatura.postgres.server import Server, start

__all__ = ["EmbeddedPostgresError", "Server", "start"]
