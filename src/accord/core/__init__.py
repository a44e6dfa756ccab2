"""Tasks, parts, methods and the values they exchange. Knows nothing of engines, files or networks."""
