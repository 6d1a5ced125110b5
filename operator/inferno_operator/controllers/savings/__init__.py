"""Savings controller: keeps an account of what Servers cost, beside what other policies would."""
