"""Decide what runs where: optimize a namespace, and carry out the Plans that people approve."""
