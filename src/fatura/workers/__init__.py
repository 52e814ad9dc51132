"""Background work: `lanes` says what runs and how much at once, `loop` runs it. Entry points: `LANES`, `Loop`."""
