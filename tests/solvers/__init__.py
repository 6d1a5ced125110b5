"""A comparison of our exact solver with others, on the same programs and at equal time."""
