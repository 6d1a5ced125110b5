"""Sizing: the capacity of one replica, and the replicas of each server on each accelerator."""
