"""Features of sandbox accounts only: a test clock, and control of the sandbox gateway.

Entry points: `read`, `advance` and `advance_to_target` of `test_clock`; `list_charges`, `list_products`, `move_charge`
and `add_fault` of `sandbox_gateway`.
"""
