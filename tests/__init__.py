"""Tests, and the control plane and demo that they share."""
