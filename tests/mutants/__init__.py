"""One-line faults planted in helpers/, each held against the tests of its room."""
