"""Learn: the lessons that are one module each, and the overview of all lessons."""
