"""Builds the programs, runs them, reads reports and compares. Knows nothing of what a program does."""
