"""An engine on a GPU: transformers' continuous batching behind the API of OpenAI."""
