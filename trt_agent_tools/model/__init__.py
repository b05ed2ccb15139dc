"""The vocabulary that every room shares: states, requests, events, snapshots, errors.

Imports nothing of ours. Nothing is re-exported here, so that the worker can take the event
types (standard library alone) without paying for the rest.
"""
