"""Payment providers: `port` defines the interface, `adapters` implement it."""
