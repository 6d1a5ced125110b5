"""Decisions of Servers reach the ModelBoosters that serve them, and what runs comes back."""
