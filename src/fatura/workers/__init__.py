"""Background work: `lanes` defines the kinds of work, `loop` runs them. Entry points: `LANES`, `Loop`."""
