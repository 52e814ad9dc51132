"""Carry out merchants' requests to cancel, reissue or refund an invoice, or to record its payment.

Entry points: `cancellation`, `reissue`, `manual_payments` and `refunds`. The first three use `charge_release` if
the gateway must cancel the charge first.
"""
