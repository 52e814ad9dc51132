"""SQL of gateway connections: their settings and credentials, their health, and their budget of polls."""
