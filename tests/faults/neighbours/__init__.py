"""Measure how one merchant's slow endpoint or large billing run affects other merchants."""
