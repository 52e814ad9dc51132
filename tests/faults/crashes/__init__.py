"""Kill the engine with SIGKILL at every statement and outside call of every flow."""
