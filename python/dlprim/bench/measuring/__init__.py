"""How the benchmark measures: cases are verified, then their sides take turns."""
