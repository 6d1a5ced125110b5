"""The plans controller: what optimizations decide is recorded, approved, and carried out."""
