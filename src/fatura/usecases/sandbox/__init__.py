"""What only sandbox accounts have: a test clock that merchants move, and control of the sandbox gateway.

Doors: `test_clock.read`, `advance` and `drive`; `sandbox_gateway.list_charges`, `list_products`, `move_charge` and
`add_fault`.
"""
