"""Maintenance and helpers that are run by hand."""
