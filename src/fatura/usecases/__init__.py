"""What the engine does: each capability is a package that opens transactions and orders the steps."""
