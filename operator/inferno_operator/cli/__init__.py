"""The command lines: `inferno` and `kubectl inferno`."""
