"""After a restore from a backup: freeze accounts, match them with their gateways, release them."""
