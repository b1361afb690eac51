"""What exercises are checked against: one module a lesson, so that no stub shows its answers."""
