"""Options that commands share, and what people type in them."""
