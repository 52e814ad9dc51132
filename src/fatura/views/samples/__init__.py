"""One sample of every answer and event for the documentation, all about Ana's gym membership."""
