"""Features of sandbox accounts only: a test clock, and control of the sandbox gateway.

Entry points: `read`, `advance`, `stop` and `advance_to_target` of `test_clock`, and the functions of `sandbox_gateway`.
"""
