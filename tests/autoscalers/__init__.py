"""Stand-ins for what scales workloads, written from the sources of Kubernetes and KEDA."""
