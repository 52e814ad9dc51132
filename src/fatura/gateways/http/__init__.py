"""The HTTP client for the APIs of payment providers. All adapters of real providers use it (D-260, ADR 0021).

Entry point: `ProviderClient.calls` returns ProviderCalls, whose `read` and `write` make calls within one deadline.
"""

from fatura.gateways.http.certificate import CertificateError, ClientCertificate, read_certificate
from fatura.gateways.http.client import (
    CONNECT_SECONDS,
    DEADLINE_SECONDS,
    MAX_BODY_BYTES,
    MAX_CALLS_OF_CONNECTION,
    Access,
    ProviderCalls,
    ProviderClient,
)
from fatura.gateways.http.form import Form
from fatura.gateways.http.reading import reading
from fatura.gateways.http.tokens import TokenRequest

__all__ = [
    "CONNECT_SECONDS",
    "DEADLINE_SECONDS",
    "MAX_BODY_BYTES",
    "MAX_CALLS_OF_CONNECTION",
    "Access",
    "CertificateError",
    "ClientCertificate",
    "Form",
    "ProviderCalls",
    "ProviderClient",
    "TokenRequest",
    "read_certificate",
    "reading",
]
