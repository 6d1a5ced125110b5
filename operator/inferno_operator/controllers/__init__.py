"""The controllers: each watches some kinds, and reconciles one object at a time."""
