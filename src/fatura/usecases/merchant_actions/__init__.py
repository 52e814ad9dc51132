"""Carry out merchants' requests to cancel, reissue or refund an invoice, or to record a payment of it.

Entry points: `cancellation`, `reissue`, `manual_payments` and `refunds`. If the charge must be canceled at the gateway
first, they use `charge_release`.
"""
