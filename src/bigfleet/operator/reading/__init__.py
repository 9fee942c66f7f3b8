"""Kubernetes' objects in the words of the core: what a pod asks for, what a node offers, what a request means."""
