"""The pay page of each invoice: what it shows, its look, its link, and the payment button of sandbox accounts (D-258).

Other packages use `fatura.usecases.pay_urls` to show the links.
"""
