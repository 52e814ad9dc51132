"""Payment providers behind one contract: `port` defines it, `registry` lists providers, `adapters` implement it."""
