"""What one replica carries, and what each server would need on each accelerator."""
