"""Params of sparkdl's stages, and what they take."""
