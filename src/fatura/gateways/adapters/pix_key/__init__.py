"""Charges by Pix codes for a merchant's own Pix key, without a payment provider."""
