"""Carry out what a merchant asks for an invoice that may have a charge: cancel, reissue, record a payment, or refund.

Entry points: `cancellation`, `reissue`, `manual_payments` and `refunds`. If the charge must be canceled at the gateway
first, they use `charge_release`.
"""
