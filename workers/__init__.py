"""Loops that call the domain. They hold no rules."""
