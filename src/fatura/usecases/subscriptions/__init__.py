"""Subscribe customers to plans; preview, customize and cancel subscriptions; correct customers."""
