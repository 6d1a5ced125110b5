"""A recorded day in minutes, with the whole loop at work: `make demo-loop`."""
