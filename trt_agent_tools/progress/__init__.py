"""Pure: events are folded into a view of the build, and a view is rendered as a snapshot."""
