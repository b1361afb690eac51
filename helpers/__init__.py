"""What the lessons share: numbers below, pictures and widgets above."""
