"""Subscribe customers to plans; preview, customize, move and cancel subscriptions; read, correct and erase customers.

Entry points: the functions of `subscriptions`, `customers`, `connection_moves` and `erasure` for routes and workers,
and the functions of `erased_list` and `operator_erasure` for operators' commands.
"""
