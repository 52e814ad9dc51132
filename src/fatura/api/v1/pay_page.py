"""The routes of the pay page's look (D-258)."""

from typing import Annotated, ClassVar

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import Color, Logo, Text
from fatura.api.http.forms import Body, Examples
from fatura.api.http.replies import run
from fatura.api.http.route import Call
from fatura.domain import audit_actions
from fatura.domain.credentials import Scope
from fatura.domain.pay_page import MAX_NAME_CHARS
from fatura.usecases.pay_page import look
from fatura.views.pay_page import PayPageView

routes = Routes("Pay page", "How the page looks on which your customers pay an invoice.")
PATH = "/v1/integration/pay-page"


class PayPageForm(Body):
    """The look of the pay pages. A field that you do not send gets its default."""

    examples: ClassVar[Examples] = {
        "a name and a color": {"name": "Academia Sol", "color": "#0b6bcb"},
        "the defaults": {},
    }

    name: Annotated[
        Annotated[str, Text(1, MAX_NAME_CHARS)] | None,
        Field(description="The name that payers see; null: the account's name."),
    ] = None
    color: Annotated[
        Color | None,
        Field(
            description="Color of the button and the top of the page; null: Fatura's own. If white text on this color "
            "is hard to read, the page uses Fatura's own color."
        ),
    ] = None
    logo: Annotated[
        Logo | None,
        Field(description="A PNG file in base64, at most 32 KiB and 1,024 x 1,024 pixels; null: no logo."),
    ] = None


@routes.get(PATH, "Read the pay page's look", answers=PayPageView)
async def read_pay_page(call: Call) -> Response:
    """Return the name, the color and the logo of the pay pages."""
    return await run(call, look.read)


@routes.put(
    PATH,
    "Set the pay page's look",
    answers=PayPageView,
    audit=audit_actions.PAY_PAGE_UPDATE,
    scope=Scope.ADMIN,
)
async def put_pay_page(call: Call, body: PayPageForm) -> Response:
    """Set the name, the color and the logo of all pay pages, including those of earlier invoices."""
    return await run(call, look.replace, name=body.name, color=body.color, logo=body.logo)
