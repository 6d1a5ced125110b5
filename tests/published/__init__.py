"""Published measurements beside estimates of the catalogue; see tests/data/published."""
