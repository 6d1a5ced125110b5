"""The program `kubectl inferno`."""
