"""Reading YAML documents into typed values, with errors that name the place, and the schema of what is accepted."""
