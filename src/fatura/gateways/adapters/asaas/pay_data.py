"""Read the Pix code or the boleto line of a payment."""

from dataclasses import replace

from fatura.domain.charge import PayData
from fatura.gateways.adapters.asaas.objects import BoletoLine, Payment, PixCode, instant
from fatura.gateways.http import ProviderCalls


async def pay_data(calls: ProviderCalls, payment: Payment, *, known: PayData) -> PayData:
    """Return the known data with the code or line of a payment that has one."""
    if payment.billing_type == "PIX":
        code = await calls.read(f"/payments/{payment.id}/pixQrCode", PixCode, may_be_absent=True)
        expires_at = instant(code.expiration_date) if code.expiration_date else None
        return replace(known, pix_code=code.payload, expires_at=expires_at)
    if payment.billing_type == "BOLETO":
        line = await calls.read(f"/payments/{payment.id}/identificationField", BoletoLine, may_be_absent=True)
        return replace(known, boleto_line=line.identification_field)
    return known
