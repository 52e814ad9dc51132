"""What a refusal means for a call that only reads."""

from collections.abc import Generator
from contextlib import contextmanager

from fatura.gateways.port import PermanentError, TransientError


@contextmanager
def reading() -> Generator[None]:
    """Raise a refused call as TransientError: it only reads, so nothing is wrong with a charge (D-34)."""
    try:
        yield
    except PermanentError as refused:
        raise TransientError(str(refused), http_status=refused.http_status) from None
