"""The HTML of pay pages: escaped texts, the ways to pay, and amounts and dates in both languages (D-258)."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from fatura.api.pay_page import formats
from fatura.api.pay_page.formats import Language, choose_language
from fatura.api.pay_page.html import element
from fatura.api.pay_page.page import Document, error_page, pay_page
from fatura.api.pay_page.texts import TEXTS
from fatura.domain.charge import PayData, ShownCharge
from fatura.domain.credentials import Mode
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.pay_page import PayPageLook
from fatura.domain.payments import EntryKind
from fatura.usecases.pay_page.pages import SHOWN, PayPage
from fatura.views.samples import story
from tests.support.pay_pages import Parsed, checked, png

LIVE = replace(story.ACCOUNT, mode=Mode.LIVE)
HOSTILE = "\"><script>alert('1')</script><img src=x onerror=alert(1)>&amp;</textarea></style>{0}{merchant}%s"
PAGE = "https://pay.example/ch_0001"
LINE = "99990531852980781970012504034906441960000009990"


def page(
    detail: InvoiceDetail | None = None, charge: ShownCharge | None = story.CHARGE, **fields: object
) -> PayPage:
    """Return the page of a live account's issued invoice."""
    shown = detail or story.invoice(InvoiceStatus.ISSUED)
    usual = PayPage(LIVE, PayPageLook("Academia Sol"), shown, charge, open_cents=story.TOTAL_CENTS)
    return replace(usual, **fields)


def charge(method: PaymentMethod, **pay: Any) -> ShownCharge:
    return replace(story.CHARGE, payment_method=method, pay=PayData(**pay))


async def shown(of: PayPage, language: Language = Language.ENGLISH, *, was_sent: bool = False) -> Parsed:
    return checked((await document(of, language, was_sent=was_sent)).html)


async def document(of: PayPage, language: Language = Language.ENGLISH, *, was_sent: bool = False) -> Document:
    return await pay_page(of, language, token="TOKEN", was_sent=was_sent)


def links(of: Parsed) -> list[str | None]:
    return [each["href"] for each in of.all("a") if not (each["href"] or "").startswith("?")]


async def test_a_pix_code_is_shown_as_text_and_as_a_qr_code():
    """[D-258]"""
    found = await shown(page(charge=charge(PaymentMethod.PIX, pix_code=story.PIX_CODE)))
    [field] = found.all("textarea")
    assert "readonly" in field
    assert found.by_tag["textarea"] == [story.PIX_CODE]
    [picture] = [each for each in found.all("div") if each.get("role") == "img"]
    assert picture["aria-label"] == TEXTS[Language.ENGLISH].qr_label
    assert found.all("svg") == [{"viewbox": "0 0 49 49"}]
    assert links(found) == []


async def test_a_boleto_is_shown_with_its_digits_and_link():
    """[D-258]"""
    found = await shown(page(charge=charge(PaymentMethod.BOLETO, boleto_line=LINE, url=PAGE)))
    assert found.by_tag["textarea"] == [formats.boleto_line(LINE)]
    assert links(found) == [PAGE]
    assert found.all("a")[0]["rel"] == "noreferrer noopener"


async def test_a_card_is_paid_at_the_provider():
    """[D-258]"""
    paid_later = replace(charge(PaymentMethod.CARD, url=PAGE), installments=3)
    found = await shown(page(charge=paid_later))
    assert links(found) == [PAGE]
    assert "in 3 installments" in found.text
    assert found.all("form") == []


@pytest.mark.parametrize(
    "url",
    [None, "", "http://pay.example/1", "javascript:alert(1)", "data:text/html,x", "//pay.example", "https:///x",
     "https://[", " https://pay.example"],
)  # fmt: skip
async def test_only_https_links_lead_to_providers(url: str | None):
    """[D-258]"""
    found = await shown(page(charge=charge(PaymentMethod.CARD, url=url)))
    assert links(found) == []
    assert "you cannot pay here. Please ask Academia Sol." in found.text


async def test_a_charge_of_another_form_leads_to_the_provider():
    """[D-258]"""
    found = await shown(page(charge=charge(PaymentMethod.PIX, url=PAGE)))
    assert links(found) == [PAGE]


@pytest.mark.parametrize("status", sorted(SHOWN))
@pytest.mark.parametrize("language", list(Language))
async def test_each_state_has_its_own_words(status: InvoiceStatus, language: Language):
    """[D-258]"""
    detail = story.invoice(status)
    found = await shown(page(detail, charge=None, open_cents=0), language)
    heading, sentence = TEXTS[language].states[status]
    assert found.by_tag["h1"] == [heading]
    assert sentence in found.texts
    assert found.by_tag["title"] == [f"{heading}: Academia Sol"]
    assert len({TEXTS[each].states[other] for each in Language for other in SHOWN}) == 2 * len(SHOWN)


async def test_a_canceled_invoice_shows_no_amount():
    """[D-258]"""
    found = await shown(page(story.invoice(InvoiceStatus.CANCELED), charge=story.CHARGE, open_cents=0))
    assert "R$" not in found.text
    assert found.all("textarea") == []

    kept = story.invoice(InvoiceStatus.CANCELED, story.entry(amount_cents=500))
    assert (
        "You have already paid R$5.00. Please ask Academia Sol" in (await shown(page(kept, charge=None))).text
    )


async def test_money_that_a_dispute_took_back_was_not_kept():
    """[D-258, D-150]"""
    steps = [
        story.entry(kind, amount_cents=500) for kind in (EntryKind.DISPUTE_OPENED, EntryKind.DISPUTE_LOST)
    ]
    detail = story.invoice(InvoiceStatus.CANCELED, story.entry(amount_cents=500), *steps)
    assert "You have already paid" not in (await shown(page(detail, charge=None))).text


async def test_nothing_is_asked_when_nothing_is_open():
    """The payments cover the total, but the state of the invoice has not changed yet. [D-258]"""
    found = await shown(page(story.invoice(InvoiceStatus.OVERDUE), open_cents=0))
    assert found.all("textarea") == []
    assert "Amount to pay" not in found.text
    assert "you cannot pay here" not in found.text


async def test_no_code_asks_for_more_than_is_open():
    """[D-258]"""
    found = await shown(page(open_cents=5000))
    place = found.texts.index("Amount to pay")
    assert found.texts[place + 1] == "R$50.00"
    assert found.all("textarea") == found.all("svg") == []
    assert "Please ask Academia Sol for a new charge of what is still to pay." in found.text


async def test_a_receipt_shows_payments_and_refunds():
    """[D-258]"""
    refund = story.entry(EntryKind.REFUND, amount_cents=1000)
    found = await shown(page(story.invoice(InvoiceStatus.PAID, story.entry(), refund), charge=None))
    at = "20 November 2026 at 09:00"
    assert [each for each in found.texts if at in each] == [
        f"Paid on {at}",
        f"Payment on {at}",
        f"Refund on {at}",
    ]
    assert str(story.INVOICE_ID) in found.text
    assert "-R$10.00" in found.text
    assert "There is nothing more to do." in found.text


async def test_a_surplus_is_named():
    """[D-258]"""
    paid = story.entry(amount_cents=story.TOTAL_CENTS + 250)
    found = await shown(page(story.invoice(InvoiceStatus.PAID, paid), charge=None, open_cents=0))
    assert "You have paid R$2.50 too much. Please ask Academia Sol about this amount." in found.text


async def test_a_returned_payment_is_not_called_paid():
    """[D-258]"""
    returned = story.invoice(InvoiceStatus.PAID, story.entry(), story.entry(EntryKind.REFUND))
    found = await shown(page(returned, charge=None, open_cents=0))
    assert "Payment returned" in found.texts
    assert "Paid invoice" not in found.text


async def test_what_is_paid_and_open_is_shown():
    """[D-258]"""
    found = await shown(page(open_cents=5000))
    place = found.texts.index("Total")
    assert found.texts[place : place + 6] == [
        *("Total", "R$199.92"),
        *("Already paid", "R$149.92"),
        *("Still to pay", "R$50.00"),
    ]
    assert "Already paid" not in (await shown(page())).texts


async def test_hostile_texts_are_shown_as_texts():
    """[D-258]"""
    items = [
        replace(each, product_name=HOSTILE, description=HOSTILE)
        for each in story.invoice(InvoiceStatus.ISSUED).items
    ]
    detail = replace(story.invoice(InvoiceStatus.ISSUED), items=items)
    pay = charge(
        PaymentMethod.BOLETO, pix_code=HOSTILE, boleto_line=HOSTILE, url=f"https://pay.example/{HOSTILE}"
    )
    made = await document(page(detail, pay, look=PayPageLook(HOSTILE)))
    found = checked(made.html)
    assert "<script" not in made.html
    assert HOSTILE in found.by_tag["p"]
    assert found.by_tag["textarea"] == [HOSTILE, HOSTILE]
    assert found.by_tag["small"].count(HOSTILE) == len(items)
    assert found.by_tag["title"] == [f"Invoice to pay: {HOSTILE}"]
    assert links(found) == [f"https://pay.example/{HOSTILE}"]


async def test_the_customer_is_not_shown():
    """[D-258]"""
    for status in SHOWN:
        html = (await document(page(story.invoice(status), charge=None))).html
        for each in (story.ANA.name, story.ANA.email, story.ANA.external_ref):
            assert each is not None
            assert each not in html


async def test_a_logo_is_part_of_the_page():
    """[D-258]"""
    made = await document(page(look=PayPageLook("Sol", None, png())))
    [logo] = checked(made.html).all("img")
    assert (logo["src"] or "").startswith("data:image/png;base64,iVBOR")
    assert logo["alt"] == ""
    assert "img-src data:;" in made.policy
    assert "img-src" not in (await document(page())).policy


async def test_only_a_sandbox_account_has_a_button():
    """[D-258]"""
    sandbox = page(account=story.ACCOUNT)
    made = await document(sandbox)
    found = checked(made.html)
    assert found.all("form") == [{"method": "post", "action": "TOKEN/sandbox-payment?lang=en"}]
    assert found.by_tag["button"] == ["Pay (test)"]
    assert links(found) == []
    assert "form-action 'self'" in made.policy
    assert TEXTS[Language.ENGLISH].test_note in found.texts

    assert (await shown(sandbox, was_sent=True)).all("form") == []
    live = await document(page())
    assert checked(live.html).all("form") == []
    assert "form-action 'none'" in live.policy


def test_an_error_page_shows_no_merchant():
    """[D-258]"""
    for status in (404, 429, 503):
        made = error_page(status, Language.ENGLISH)
        found = checked(made.html)
        assert found.by_tag["h1"] == [TEXTS[Language.ENGLISH].errors[status][0]]
        assert "header" not in [tag for tag, _ in found.start]
        assert "form-action 'none'" in made.policy


def test_attributes_are_escaped():
    """[D-258]"""
    assert element("a", "<", ["&", None], title='"<', hidden=True, rel=None) == (
        '<a title="&quot;&lt;" hidden>&lt;&amp;</a>'
    )
    assert element("img", alt="") == '<img alt="">'


@pytest.mark.parametrize(
    ("cents", "portuguese", "english"),
    [
        (0, "R$\xa00,00", "R$0.00"),
        (5, "R$\xa00,05", "R$0.05"),
        (19992, "R$\xa0199,92", "R$199.92"),
        (123456789, "R$\xa01.234.567,89", "R$1,234,567.89"),
        (-150, "-R$\xa01,50", "-R$1.50"),
    ],
)
def test_amounts_are_written_as_in_each_language(cents: int, portuguese: str, english: str):
    """[D-258]"""
    assert formats.money(cents, "BRL", language=Language.PORTUGUESE) == portuguese
    assert formats.money(cents, "BRL", language=Language.ENGLISH) == english
    assert formats.money(100, "USD", language=Language.ENGLISH) == "USD\xa01.00"


def test_dates_are_written_in_words():
    """[D-258]"""
    assert formats.day(date(2026, 3, 1), Language.PORTUGUESE) == "1º de março de 2026"
    assert formats.day(date(2026, 12, 10), Language.PORTUGUESE) == "10 de dezembro de 2026"
    assert formats.day(date(2026, 12, 10), Language.ENGLISH) == "10 December 2026"
    midnight = datetime(2026, 12, 11, 3, tzinfo=UTC)
    assert formats.instant(midnight, Language.PORTUGUESE) == "11 de dezembro de 2026 às 00:00"
    assert formats.moment(midnight, Language.PORTUGUESE) == "11 de dezembro de 2026"
    assert formats.moment(midnight.replace(minute=5), Language.ENGLISH) == "11 December 2026 at 00:05"
    assert formats.deadline(midnight, Language.ENGLISH) == "10 December 2026 at 23:59"
    assert formats.deadline(midnight.replace(minute=5), Language.ENGLISH) == "11 December 2026 at 00:05"


def test_the_line_of_a_boleto_is_written_in_groups():
    """[D-258]"""
    assert formats.boleto_line(LINE) == "99990.53185 29807.819700 12504.034906 4 41960000009990"
    bill = formats.boleto_line("836200000018" * 4)
    assert bill == " ".join(["83620000001-8"] * 4)
    assert formats.boleto_line("123") == "123"


@pytest.mark.parametrize(
    ("asked", "accepted", "language"),
    [
        (None, "", "pt-BR"),
        ("en", "pt-BR", "en"),
        ("EN", "", "en"),
        ("pt-br", "en", "pt-BR"),
        ("fr", "en", "en"),
        (None, "en", "en"),
        (None, "en-GB,en;q=0.9", "en"),
        (None, "en;q=0.5, pt;q=0.8", "pt-BR"),
        (None, "fr, en;q=0.3", "en"),
        (None, "en;q=0", "pt-BR"),
        (None, "en;q=1.0, pt", "en"),
        (None, "*", "pt-BR"),
        (None, "*, en;q=0.1", "pt-BR"),
        (None, "en;q=1.9, pt-BR", "pt-BR"),
        (None, "pt;q=0.5, en;Q=0.9", "en"),
        (None, "x" * 10_000, "pt-BR"),
        (None, ",;q=,en;q=x", "pt-BR"),
        (None, ",".join(["fr"] * 100 + ["en"]), "pt-BR"),
    ],
)
def test_the_language_is_asked_for_or_accepted(asked: str | None, accepted: str, language: str):
    """[D-258]"""
    assert choose_language(asked, accepted) == language
