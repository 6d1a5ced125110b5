"""The program `inferno`."""
