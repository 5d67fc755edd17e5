"""Stages for texts; users import them from sparkdl.text."""
