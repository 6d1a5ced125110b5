"""Where LLM inference should run: sizing by queueing theory, assignment by optimization.

A plain library: a System goes in, a Solution comes out.
"""
