"""One sample of every answer and event, all from the story of Ana's gym membership; for the documentation."""
