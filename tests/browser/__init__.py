"""Pages of this program in a real browser."""
