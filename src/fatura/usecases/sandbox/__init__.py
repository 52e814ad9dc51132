"""Features of sandbox accounts only: a test clock, and control of the sandbox gateway.

Entry points: `test_clock.read`, `advance` and `advance_to_target`; `sandbox_gateway.list_charges`, `list_products`,
`move_charge` and `add_fault`.
"""
