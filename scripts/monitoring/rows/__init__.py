"""The eight rows of the dashboard, two in a module."""
