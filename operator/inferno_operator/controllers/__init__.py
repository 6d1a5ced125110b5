"""The controllers: each watches some kinds and reconciles their objects one by one."""
