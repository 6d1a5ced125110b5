"""Replay: what a policy would have done with a recorded load, and what that would have cost."""
