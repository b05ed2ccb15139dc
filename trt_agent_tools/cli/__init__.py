"""The command line: serve, build, demo, doctor. A front end over a `BuildService`."""
