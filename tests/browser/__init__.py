"""Pages in a real browser: the Chromium of the distribution, driven by Playwright."""
