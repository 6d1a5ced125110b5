"""What llm-d's Workload Variant Autoscaler (WVA) is configured with, from v0.5 to v0.9."""
