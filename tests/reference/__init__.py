"""The reference in `docs/` as the code has it; `python -m tests.reference` writes it there."""
