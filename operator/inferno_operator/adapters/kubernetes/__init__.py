"""The API server, through the official client."""
