"""Kill the engine with SIGKILL at every statement and external call of every flow."""
