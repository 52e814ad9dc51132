"""What the engine does, one verb at a time: opens the transaction and orders the steps."""
