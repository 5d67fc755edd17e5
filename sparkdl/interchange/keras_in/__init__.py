"""Models of Keras, read from their files without Keras and without running anything of them."""
