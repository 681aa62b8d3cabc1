"""Whole networks: from model files beside other runtimes, and trained beside PyTorch."""
