"""Measure how one slow merchant affects the others."""
