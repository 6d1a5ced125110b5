"""Publish the decisions for Servers, for autoscalers that carry them out."""
