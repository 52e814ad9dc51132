"""SQL that generates and reads invoices and writes their status."""
