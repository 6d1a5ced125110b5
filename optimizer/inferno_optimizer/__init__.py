"""Decides where LLM inference servers run: sizing by queueing theory, assignment by optimization.

A plain library: it takes a System and returns a Solution.
"""
