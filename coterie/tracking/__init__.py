"""Runs as experiment trackers know them: parameters, metrics over rounds, files."""
