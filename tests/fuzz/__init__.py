"""Seeded mutation fuzzing: valid files and command lines, damaged on purpose, of which genpr must make a score or an error."""
