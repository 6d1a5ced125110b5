"""Why a decision is as it is, and what would change it."""
