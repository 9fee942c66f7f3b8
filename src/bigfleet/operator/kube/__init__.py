"""The API server as the operator and the pod controller use it: credentials, requests, list-watch, leases, Events."""
