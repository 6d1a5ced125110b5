"""ModelBooster: convert boosters to serving, server and route, and keep them in sync."""
