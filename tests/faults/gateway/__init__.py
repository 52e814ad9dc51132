"""Test the engine with a gateway that loses responses, creates charges late and hides them."""
