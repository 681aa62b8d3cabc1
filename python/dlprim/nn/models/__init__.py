"""Whole models that are traced."""
