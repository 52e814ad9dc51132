"""A gateway that loses answers, creates charges late and hides them."""
