"""Access to the API server through the official asyncio client."""
