"""What both programs print: tables, and lines between them."""
