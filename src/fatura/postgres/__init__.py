"""An embedded PostgreSQL: `start` a server on a data folder, connect to its `url`, `stop` it."""

from fatura.postgres.failure import EmbeddedPostgresError
from fatura.postgres.releases import newer_minor
from fatura.postgres.server import Server, exists, start

__all__ = ["EmbeddedPostgresError", "Server", "exists", "newer_minor", "start"]
