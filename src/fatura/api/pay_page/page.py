"""The HTML of the pay page: items and amounts, due date, ways to pay, and receipt."""

import base64
from dataclasses import dataclass

from fatura.api.pay_page import formats, methods
from fatura.api.pay_page.formats import Language
from fatura.api.pay_page.html import Content, Html, element
from fatura.api.pay_page.style import style
from fatura.api.pay_page.texts import TEXTS
from fatura.domain.invoice import InvoiceItem
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.pay_page import PayPageLook
from fatura.domain.payments import EntryKind, balance_of
from fatura.usecases.pay_page.pages import PayPage

NOTHING_ALLOWED = "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
"""The policy of an answer without a page."""


@dataclass(frozen=True, slots=True)
class Document:
    """A page, and its Content-Security-Policy, which allows nothing that the page does not need."""

    html: str
    policy: str


async def pay_page(page: PayPage, language: Language, *, token: str, was_sent: bool) -> Document:
    """Return the page of an invoice. `was_sent` is true if the sandbox button has just sent a payment."""
    invoice, texts = page.detail.invoice, TEXTS[language]
    heading, sentence = texts.returned if _is_returned(page) else texts.states[invoice.status]
    kind = {InvoiceStatus.PAID: "good", InvoiceStatus.OVERDUE: "bad", InvoiceStatus.CANCELED: "bad"}
    is_canceled = invoice.status is InvoiceStatus.CANCELED
    due = texts.due.format(when=formats.day(invoice.due_date, language))
    ways = await methods.ways_to_pay(page, language, token=token, was_sent=was_sent)
    main = (
        element("p", texts.test_note, class_="test") if page.is_test else None,
        element("h1", heading),
        element("p", sentence, class_=kind.get(invoice.status)),
        _overpaid(page, language),
        _paid_before_canceled(page, language) if is_canceled else (element("p", due), _items(page, language)),
        ways,
        _receipt(page, language) if invoice.status is InvoiceStatus.PAID else None,
    )
    title = texts.title.format(heading=heading, merchant=page.look.name)
    return _document(language, title=title, look=page.look, main=main, has_form=methods.has_form(page))


def error_page(status: int, language: Language, *, here: str = "") -> Document:
    """Return the page of an error. The page shows no data of the merchant or the invoice.

    The page links to a page in the other language. `here` is the address in this link; by default, it is the address
    of the error page itself.
    """
    errors = TEXTS[language].errors
    heading, sentence = errors.get(status) or errors[503 if status >= 500 else 404]
    main = (element("h1", heading), element("p", sentence))
    return _document(language, title=heading, look=None, main=main, has_form=False, here=here)


def _document(
    language: Language,
    *,
    title: str,
    look: PayPageLook | None,
    main: Content,
    has_form: bool,
    here: str = "",
) -> Document:
    rules, style_source = style(None if look is None else look.color)
    other = language.other
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="format-detection", content="telephone=no"),
        element("title", title),
        rules,
    )
    link = element("a", TEXTS[other].other_language, href=f"{here}?lang={other}", hreflang=other, lang=other)
    body = element(
        "body",
        None if look is None else _header(look),
        element("main", main),
        element("footer", element("p", link)),
    )
    has_logo = look is not None and look.logo is not None
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {style_source}",
            *(("img-src data:",) if has_logo else ()),
            "form-action 'self'" if has_form else "form-action 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        )
    )
    return Document(f"<!doctype html>\n{element('html', head, body, lang=language)}\n", policy)


def _header(look: PayPageLook) -> Html:
    logo = None
    if look.logo is not None:
        source = f"data:image/png;base64,{base64.b64encode(look.logo).decode()}"
        logo = element("img", src=source, alt="")
    return element("header", element("div", logo, element("p", look.name)))


def _items(page: PayPage, language: Language) -> Html:
    """Return the table of items, with the total. If a part is paid, add the paid and the open amount."""
    invoice, texts = page.detail.invoice, TEXTS[language]
    total_cents = invoice.total_cents or 0
    sums = [(texts.total, total_cents)]
    if 0 < page.open_cents < total_cents:
        sums += [(texts.already_paid, total_cents - page.open_cents), (texts.still_open, page.open_cents)]
    charged = [each for each in page.detail.items if each.amount_cents is not None]
    head = element("tr", element("th", texts.item, scope="col"), element("th", texts.amount, scope="col"))
    rows = [_row(_item(each, language), each.amount_cents or 0, page, language) for each in charged]
    table = element(
        "table",
        element("caption", texts.items),
        element("thead", head),
        element("tbody", rows),
        element("tfoot", [_row(name, cents, page, language) for name, cents in sums]),
    )
    return element("section", table)


def _item(item: InvoiceItem, language: Language) -> Content:
    texts = TEXTS[language]
    notes = [
        texts.months.format(count=item.months) if item.months > 1 else None,
        texts.discount.format(count=item.discount_percent) if item.discount_percent else None,
        item.description,
    ]
    return item.product_name, [element("small", each) for each in notes if each]


def _row(name: Content, cents: int, page: PayPage, language: Language) -> Html:
    amount = formats.money(cents, page.detail.invoice.currency, language=language)
    return element("tr", element("th", name, scope="row"), element("td", amount))


def _paid_before_canceled(page: PayPage, language: Language) -> Html | None:
    invoice, texts = page.detail.invoice, TEXTS[language]
    kept_cents = balance_of(page.detail.payments).held_cents
    if not kept_cents:
        return None
    amount = formats.money(kept_cents, invoice.currency, language=language)
    return element("p", texts.canceled_after_payment.format(amount=amount, merchant=page.look.name))


def _is_returned(page: PayPage) -> bool:
    """Return whether the invoice is paid, but all its money was returned."""
    balance = balance_of(page.detail.payments)
    is_paid = page.detail.invoice.status is InvoiceStatus.PAID
    return is_paid and 0 < balance.paid_cents == balance.refunded_cents


def _overpaid(page: PayPage, language: Language) -> Html | None:
    invoice, texts = page.detail.invoice, TEXTS[language]
    surplus_cents = balance_of(page.detail.payments).held_cents - (invoice.total_cents or 0)
    if invoice.status is not InvoiceStatus.PAID or surplus_cents <= 0:
        return None
    amount = formats.money(surplus_cents, invoice.currency, language=language)
    return element("p", texts.overpaid.format(amount=amount, merchant=page.look.name))


def _receipt(page: PayPage, language: Language) -> Html:
    """Return the receipt: the payments and refunds with their times, and the invoice's id."""
    invoice, texts = page.detail.invoice, TEXTS[language]
    assert invoice.paid_at is not None, "the invoice is paid"
    kinds = {EntryKind.PAYMENT: texts.payment, EntryKind.REFUND: texts.refund}
    rows = [
        _row(
            kinds[each.kind].format(when=formats.moment(each.occurred_at, language)),
            -each.amount_cents if each.kind is EntryKind.REFUND else each.amount_cents,
            page,
            language,
        )
        for each in page.detail.payments
        if each.kind in kinds
    ]
    paid_at = texts.paid_at.format(when=formats.moment(invoice.paid_at, language))
    return element(
        "section",
        element("h2", texts.receipt),
        element("p", paid_at),
        element("table", element("tbody", rows)) if rows else None,
        element("p", texts.invoice_id, ": ", str(invoice.invoice_id), class_="soft"),
        element("p", texts.print_hint, class_="soft"),
    )
