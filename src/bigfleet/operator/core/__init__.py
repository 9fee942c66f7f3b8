"""The pure operator: no clock, no stream, no API server, no NumPy. Shells around it carry what goes in and out."""
