"""How an account's pay pages look (D-258)."""

import base64
from typing import Annotated, Self

from msgspec import Meta

from fatura.domain.pay_page import COLOR_PATTERN, MAX_LOGO_CHARS, PayPageLook
from fatura.views.view import View


class PayPageView(View):
    """How the pay pages of the account look."""

    name: Annotated[str, Meta(description="The name that payers see. By default, the account's name.")]
    color: Annotated[
        Annotated[str, Meta(pattern=COLOR_PATTERN)] | None,
        Meta(description="Color of the button and the top of the page; null: Fatura's own."),
    ]
    logo: Annotated[
        Annotated[str, Meta(max_length=MAX_LOGO_CHARS)] | None,
        Meta(description="A PNG file in base64; null: no logo."),
    ]

    @classmethod
    def of(cls, look: PayPageLook) -> Self:
        logo = None if look.logo is None else base64.b64encode(look.logo).decode()
        return cls(name=look.name, color=look.color, logo=logo)
