"""Carry out merchants' requests to cancel, reissue or refund an invoice, or to record its payment.

Entry points: `cancellation`, `reissue`, `manual_payments` and `refunds`. All except `refunds` call `charge_release` if
the gateway must first cancel the charge.
"""
