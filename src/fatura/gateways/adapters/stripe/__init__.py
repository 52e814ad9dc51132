"""The provider `stripe`: hosted invoices of Stripe, paid by card, Pix or boleto (D-263, ADR 0022)."""
