"""Measures over what nodes predicted, chose and sent: pure functions of numpy arrays."""
