"""The journal: what happened to every build, kept on disk in SQLite through any crash."""
