"""An engine that completes prompts, as a benchmark sees it: the API of OpenAI."""
