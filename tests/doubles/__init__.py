"""Simulated payment providers, which tests run as HTTP servers."""
