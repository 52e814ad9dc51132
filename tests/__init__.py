"""Tests of the real engine on a real PostgreSQL. No part of the engine is mocked."""
