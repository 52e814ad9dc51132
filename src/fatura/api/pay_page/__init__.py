"""The page on which a payer sees and pays an invoice, in Portuguese and English, without scripts (D-258)."""
