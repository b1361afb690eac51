"""How fast things are for the reader and for CI; ``python -m tests.benchmarks``, or make bench."""
