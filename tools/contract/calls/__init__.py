"""Programs that call a running engine with a generated client; copied beside the client, checked and run there."""
