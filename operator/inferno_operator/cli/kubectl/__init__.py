"""The plugin `kubectl inferno`."""
