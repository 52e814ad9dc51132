"""All texts of the page, in one table for each language."""

from collections.abc import Mapping
from dataclasses import dataclass

from fatura.api.pay_page.formats import Language
from fatura.domain.invoice_states import InvoiceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The texts of one language. Words in braces are replaced: `{merchant}`, `{amount}`, `{when}` and `{count}`.

    `states` has the heading and the sentence of each state that the page shows.
    """

    states: Mapping[InvoiceStatus, tuple[str, str]]
    due: str
    title: str
    items: str
    item: str
    amount: str
    months: str
    discount: str
    total: str
    already_paid: str
    still_open: str
    to_pay: str
    installments: str
    pay_until: str
    by_pix: str
    pix_steps: str
    pix_code: str
    qr_label: str
    copy_hint: str
    by_boleto: str
    boleto_line: str
    boleto_link: str
    by_card: str
    card_hint: str
    card_link: str
    provider_link: str
    whole_amount_only: str
    no_way: str
    canceled_after_payment: str
    overpaid: str
    returned: tuple[str, str]
    """The heading and the sentence of a paid invoice whose payments were all returned."""
    receipt: str
    paid_at: str
    payment: str
    refund: str
    invoice_id: str
    print_hint: str
    test_note: str
    by_test: str
    test_hint: str
    test_button: str
    test_sent: str
    open_again: str
    other_language: str
    errors: Mapping[int, tuple[str, str]]
    """The heading and the sentence of each status of an error."""


_PORTUGUESE = Texts(
    states={
        InvoiceStatus.READY: (
            "Fatura em preparação",
            "A cobrança ainda está sendo preparada. Abra esta página de novo em alguns minutos.",
        ),
        InvoiceStatus.ISSUED: (
            "Fatura a pagar",
            "Pague até o vencimento. Se você já pagou, não pague de novo: a confirmação pode demorar.",
        ),
        InvoiceStatus.OVERDUE: (
            "Fatura em atraso",
            "O pagamento ainda não foi confirmado. Se você já pagou, não pague de novo: a confirmação pode demorar.",
        ),
        InvoiceStatus.PAID: ("Fatura paga", "O pagamento foi confirmado. Não é preciso fazer mais nada."),
        InvoiceStatus.CANCELED: (
            "Fatura cancelada",
            "Esta fatura foi cancelada. Não pague nenhum código ou boleto dela.",
        ),
    },
    due="Vencimento: {when}",
    title="{heading}: {merchant}",
    items="O que está sendo cobrado",
    item="Item",
    amount="Valor",
    months="{count} meses",
    discount="desconto de {count}%",
    total="Total",
    already_paid="Já pago",
    still_open="Falta pagar",
    to_pay="Valor a pagar",
    installments="em {count} parcelas",
    pay_until="Pague até {when} (horário de Brasília).",
    by_pix="Pagar com Pix",
    pix_steps="Abra o aplicativo do seu banco, escolha Pix e leia o QR Code, ou copie o código abaixo.",
    pix_code="Código Pix copia e cola",
    qr_label="QR Code do Pix, com o mesmo código do campo abaixo",
    copy_hint="Toque no campo e segure, escolha “Selecionar tudo” e depois “Copiar”.",
    by_boleto="Pagar com boleto",
    boleto_line="Linha digitável do boleto",
    boleto_link="Abrir o boleto em PDF, na página do provedor de pagamento",
    by_card="Pagar com cartão",
    card_hint="O pagamento acontece na página segura do provedor. O número do cartão não passa por esta página.",
    card_link="Pagar com cartão",
    provider_link="Abrir a página do provedor de pagamento",
    whole_amount_only="A cobrança desta fatura é do valor total, do qual uma parte já foi paga. Peça a {merchant} uma "
    "nova cobrança do que falta pagar.",
    no_way="No momento, não há como pagar por aqui. Fale com {merchant}.",
    canceled_after_payment="Você já pagou {amount}. Fale com {merchant} sobre esse valor.",
    overpaid="Você pagou {amount} a mais. Fale com {merchant} sobre esse valor.",
    returned=("Pagamento devolvido", "O valor pago desta fatura foi devolvido."),
    receipt="Comprovante",
    paid_at="Paga em {when}",
    payment="Pagamento em {when}",
    refund="Devolução em {when}",
    invoice_id="Número da fatura",
    print_hint="Para guardar o comprovante, imprima esta página ou salve-a como PDF.",
    test_note="Ambiente de teste: aqui nenhum dinheiro de verdade é movimentado.",
    by_test="Pagamento de teste",
    test_hint="O botão faz de conta que o cliente pagou tudo o que falta.",
    test_button="Pagar (teste)",
    test_sent="O pagamento de teste foi enviado. Abra a página de novo em alguns segundos para ver a confirmação.",
    open_again="Abrir a página de novo",
    other_language="Ver em português",
    errors={
        404: (
            "Link inválido",
            "Este link não abre nenhuma fatura. Confira o endereço, ou peça o link a quem está cobrando.",
        ),
        429: ("Muitos acessos", "Esta página foi aberta muitas vezes. Tente de novo em um minuto."),
        503: (
            "Página indisponível",
            "A página não pode ser aberta agora. Tente de novo em alguns instantes.",
        ),
    },
)

_ENGLISH = Texts(
    states={
        InvoiceStatus.READY: (
            "Invoice being prepared",
            "The charge is still being prepared. Open this page again in a few minutes.",
        ),
        InvoiceStatus.ISSUED: (
            "Invoice to pay",
            "Pay by the due date. If you have already paid, do not pay again: the confirmation may take time.",
        ),
        InvoiceStatus.OVERDUE: (
            "Overdue invoice",
            "No payment is confirmed. If you have already paid, do not pay again: the confirmation may take time.",
        ),
        InvoiceStatus.PAID: ("Paid invoice", "The payment is confirmed. There is nothing more to do."),
        InvoiceStatus.CANCELED: (
            "Canceled invoice",
            "This invoice was canceled. Do not pay any code or boleto of it.",
        ),
    },
    due="Due date: {when}",
    title="{heading}: {merchant}",
    items="What you are charged for",
    item="Item",
    amount="Amount",
    months="{count} months",
    discount="{count}% discount",
    total="Total",
    already_paid="Already paid",
    still_open="Still to pay",
    to_pay="Amount to pay",
    installments="in {count} installments",
    pay_until="Pay by {when} (time in Brasília).",
    by_pix="Pay with Pix",
    pix_steps="Open your bank's app, choose Pix and scan the QR code, or copy the code below.",
    pix_code="Pix code to copy and paste",
    qr_label="QR code of the Pix, with the same code as the field below",
    copy_hint="Tap and hold the field, choose “Select all” and then “Copy”.",
    by_boleto="Pay with a boleto",
    boleto_line="Digits of the boleto",
    boleto_link="Open the boleto as a PDF, at the payment provider",
    by_card="Pay with a card",
    card_hint="You pay on the secure page of the provider. The card's number does not pass through this page.",
    card_link="Pay with a card",
    provider_link="Open the page of the payment provider",
    whole_amount_only="The charge of this invoice is for the whole amount, of which a part is already paid. Please ask "
    "{merchant} for a new charge of what is still to pay.",
    no_way="At the moment, you cannot pay here. Please ask {merchant}.",
    canceled_after_payment="You have already paid {amount}. Please ask {merchant} about this amount.",
    overpaid="You have paid {amount} too much. Please ask {merchant} about this amount.",
    returned=("Payment returned", "What was paid for this invoice was returned."),
    receipt="Receipt",
    paid_at="Paid on {when}",
    payment="Payment on {when}",
    refund="Refund on {when}",
    invoice_id="Invoice number",
    print_hint="To keep the receipt, print this page or save it as a PDF.",
    test_note="Test environment: no real money moves here.",
    by_test="Test payment",
    test_hint="The button pretends that the customer has paid everything that is still to pay.",
    test_button="Pay (test)",
    test_sent="The test payment was sent. Open the page again in a few seconds to see the confirmation.",
    open_again="Open the page again",
    other_language="View in English",
    errors={
        404: (
            "Invalid link",
            "This link opens no invoice. Check the address, or ask the merchant for the link.",
        ),
        429: ("Too many views", "This page was opened too often. Try again in a minute."),
        503: ("Page unavailable", "The page cannot be opened now. Try again in a few moments."),
    },
)

TEXTS: Mapping[Language, Texts] = {Language.PORTUGUESE: _PORTUGUESE, Language.ENGLISH: _ENGLISH}
