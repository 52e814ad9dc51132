"""The part of the pay page that says how to pay: with Pix, a boleto, a card, or the button of a sandbox account."""

from urllib.parse import urlsplit

from fatura.api.pay_page import formats
from fatura.api.pay_page.formats import Language
from fatura.api.pay_page.html import Content, Html, element, joined
from fatura.api.pay_page.qr import qr_svg
from fatura.api.pay_page.texts import TEXTS, Texts
from fatura.domain.charge import ShownCharge
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.usecases.pay_page.pages import PayPage

SENT = "sent"
"""The query parameter that the page gets after a payment with the button."""
_LARGE_CHARS = 14
"""A longer amount gets smaller letters, because an amount that is broken into two lines could be misread."""
_PAYABLE = frozenset({InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE})


def has_form(page: PayPage) -> bool:
    """Return whether the page has the button that pays the charge of a sandbox account."""
    return page.is_test and page.to_pay_cents > 0 and page.detail.invoice.status in _PAYABLE


async def ways_to_pay(page: PayPage, language: Language, *, token: str, was_sent: bool) -> Content:
    """Return the ways in which the payer can pay the invoice now, or None if there is nothing to pay."""
    texts, charge = TEXTS[language], page.charge if page.to_pay_cents else None
    if page.detail.invoice.status not in _PAYABLE or not page.open_cents:
        return None
    parts: list[Html] = []
    if charge is not None and page.to_pay_cents == charge.amount_cents:
        parts = await _by_charge(page, charge, texts)
    elif charge is not None:
        note = element("p", texts.whole_amount_only.format(merchant=page.look.name), class_="bad")
        parts = [element("section", note)]
    if has_form(page):
        parts.append(_test(texts, language, token=token, was_sent=was_sent))
    if charge is None or not parts:
        return element("p", texts.no_way.format(merchant=page.look.name), class_="bad")
    return _amount(page, charge, texts, language), parts


async def _by_charge(page: PayPage, charge: ShownCharge, texts: Texts) -> list[Html]:
    """Return the ways to pay the charge. Each of them pays the charge's whole amount."""
    pix = await _pix(page, charge, texts)
    # the links of sandbox charges lead nowhere
    link = None if page.is_test else _https(charge.pay.url)
    parts = [
        each for each in (pix, _boleto(charge, texts, link=link), _card(charge, texts, link=link)) if each
    ]
    if not parts and link is not None:
        parts = [element("section", element("p", _link(link, texts.provider_link, class_="button")))]
    return parts


def _amount(page: PayPage, charge: ShownCharge, texts: Texts, language: Language) -> Html:
    """Return what the payer should pay, in how many installments, and until when the charge can be paid."""
    amount = formats.money(page.to_pay_cents, charge.currency, language=language)
    until = charge.pay.expires_at
    count = charge.installments if page.to_pay_cents == charge.amount_cents else None
    return element(
        "section",
        element("h2", texts.to_pay),
        element("p", amount, class_="amount" if len(amount) <= _LARGE_CHARS else "amount long"),
        element("p", texts.installments.format(count=count)) if count else None,
        element("p", texts.pay_until.format(when=formats.deadline(until, language)), class_="soft")
        if until
        else None,
    )


async def _pix(page: PayPage, charge: ShownCharge, texts: Texts) -> Html | None:
    code = charge.pay.pix_code
    if not code:
        return None
    drawn = await qr_svg(code, account_id=page.account.account_id)
    return element(
        "section",
        element("h2", texts.by_pix),
        element("p", texts.pix_steps),
        element("div", drawn, class_="qr", role="img", aria_label=texts.qr_label) if drawn else None,
        _field("pix-code", texts.pix_code, code, hint=texts.copy_hint),
        element("p", charge.instructions, class_="soft", dir="auto") if charge.instructions else None,
    )


def _boleto(charge: ShownCharge, texts: Texts, *, link: str | None) -> Html | None:
    if not charge.pay.boleto_line:
        return None
    line = formats.boleto_line(charge.pay.boleto_line)
    return element(
        "section",
        element("h2", texts.by_boleto),
        _field("boleto-line", texts.boleto_line, line, hint=texts.copy_hint),
        element("p", _link(link, texts.boleto_link)) if link else None,
    )


def _card(charge: ShownCharge, texts: Texts, *, link: str | None) -> Html | None:
    if charge.payment_method is not PaymentMethod.CARD or link is None:
        return None
    return element(
        "section",
        element("h2", texts.by_card),
        element("p", texts.card_hint),
        element("p", _link(link, texts.card_link, class_="button")),
    )


def _field(id_: str, label: str, value: str, *, hint: str) -> Html:
    """Return a read-only field from which the payer can copy a text."""
    return joined(
        (
            element("label", label, for_=id_),
            element("textarea", value, id=id_, rows="4", readonly=True, aria_describedby=f"{id_}-hint"),
            element("p", hint, id=f"{id_}-hint", class_="soft"),
        )
    )


def _test(texts: Texts, language: Language, *, token: str, was_sent: bool) -> Html:
    action = f"{token}/sandbox-payment?lang={language}"
    button = element(
        "form", element("button", texts.test_button, type="submit"), method="post", action=action
    )
    again = element("p", element("a", texts.open_again, href=f"?lang={language}"))
    sent = (element("p", texts.test_sent, role="status", class_="good"), again)
    return element(
        "section",
        element("h2", texts.by_test),
        sent if was_sent else (element("p", texts.test_hint), button),
    )


def _link(url: str, text: str, *, class_: str | None = None) -> Html:
    return element("a", text, href=url, rel="noreferrer noopener", class_=class_)


def _https(url: str | None) -> str | None:
    """Return the URL of a provider's page if it is a valid https URL, else None."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if url[:8].lower() == "https://" and parts.hostname else None
