"""Test the adapters with simulated providers that lose answers, while workers are killed during calls."""
