"""Tests: the real engine on a real PostgreSQL; nothing of ours is mocked."""
