"""The banks whose Pix API the adapter knows: where each bank differs from the Central Bank's document (D-262).

Only `efi` has been described in detail by its bank's own pages. The other profiles come from the banks' documents as
public client libraries repeat them.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode
from uuid import uuid4

from fatura.gateways.http import TokenRequest

SCOPES = "cobv.read cobv.write pix.read pix.write"
"""What the adapter's calls need: charges with a due date, and payments with their refunds."""


class Secret(StrEnum):
    """How a bank wants the client id and the client secret in the request for a token."""

    HEADER = "header"
    """As HTTP Basic authentication."""
    BODY = "body"
    """As fields of the body."""
    NONE = "none"
    """The client id as a field of the body, and no secret: the certificate proves who asks."""


@dataclass(frozen=True, slots=True)
class Urls:
    """The base URL of the Pix API, and the URL of tokens, of one environment."""

    api: str
    token: str


@dataclass(frozen=True, slots=True)
class Bank:
    """What differs at a bank. `name` is for people.

    `client_id_header` and `app_key_parameter` name the header and the URL parameter in which each call must repeat the
    client id or an application key. `call_id_header` must have a new UUID in each call.
    """

    name: str
    urls: Mapping[str, Urls]
    secret: Secret
    has_json_tokens: bool = False
    scopes: str | None = SCOPES
    client_id_header: str | None = None
    app_key_parameter: str | None = None
    call_id_header: str | None = None

    def headers(self, client_id: str) -> Mapping[str, str]:
        own = {} if self.client_id_header is None else {self.client_id_header: client_id}
        return own if self.call_id_header is None else {**own, self.call_id_header: str(uuid4())}

    def token_request(self, url: str, *, client_id: str, client_secret: str) -> TokenRequest:
        fields = {"grant_type": "client_credentials"}
        headers, secrets = dict[str, str](), [client_secret]
        if self.scopes is not None:
            fields["scope"] = self.scopes
        if self.secret is Secret.HEADER:
            pair = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
            secrets.append(pair)
        else:
            fields["client_id"] = client_id
        if self.secret is Secret.BODY:
            fields["client_secret"] = client_secret
        body = json.dumps(fields) if self.has_json_tokens else urlencode(fields)
        kind = "application/json" if self.has_json_tokens else "application/x-www-form-urlencoded"
        return TokenRequest(url, headers, body.encode(), kind, tuple(each for each in secrets if each))


_INTER = "https://cdpj.partners.bancointer.com.br"
_INTER_SANDBOX = "https://cdpj-sandbox.partners.uatinter.co"

BANKS: Mapping[str, Bank] = {
    "efi": Bank(
        "Efí",
        {
            "production": Urls(
                "https://pix.api.efipay.com.br/v2", "https://pix.api.efipay.com.br/oauth/token"
            ),
            "sandbox": Urls(
                "https://pix-h.api.efipay.com.br/v2", "https://pix-h.api.efipay.com.br/oauth/token"
            ),
        },
        Secret.HEADER,
        has_json_tokens=True,
        scopes=None,  # the scopes are those of the application
    ),
    "bb": Bank(
        "Banco do Brasil",
        {"production": Urls("https://api-pix.bb.com.br/pix/v2", "https://oauth.bb.com.br/oauth/token")},
        Secret.HEADER,
        app_key_parameter="gw-dev-app-key",
    ),
    "inter": Bank(
        "Banco Inter",
        {
            "production": Urls(f"{_INTER}/pix/v2", f"{_INTER}/oauth/v2/token"),
            "sandbox": Urls(f"{_INTER_SANDBOX}/pix/v2", f"{_INTER_SANDBOX}/oauth/v2/token"),
        },
        Secret.BODY,
    ),
    "itau": Bank(
        "Itaú",
        {
            "production": Urls(
                "https://secure.api.itau/pix_recebimentos/v2", "https://sts.itau.com.br/api/oauth/token"
            )
        },
        Secret.BODY,
        scopes=None,
        client_id_header="x-itau-apikey",
        call_id_header="x-itau-correlationID",
    ),
    "sicoob": Bank(
        "Sicoob",
        {
            "production": Urls(
                "https://api.sicoob.com.br/pix/api/v2",
                "https://auth.sicoob.com.br/auth/realms/cooperado/protocol/openid-connect/token",
            )
        },
        Secret.NONE,
        client_id_header="client_id",
    ),
}
ENVIRONMENTS = ("production", "sandbox")
