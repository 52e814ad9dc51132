"""Get the values of variable items from the merchant's price endpoint or from a manual entry (spec 4.7).

Entry points: `price_pull.pull` and `price_pull.retry` call the endpoint, `manual_values.close` sets a value,
`pricing_test.call` makes a test call.
"""
