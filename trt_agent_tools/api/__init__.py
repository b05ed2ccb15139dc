"""The supervisor as a process of its own: the HTTP API over a `BuildService`, and its client."""
