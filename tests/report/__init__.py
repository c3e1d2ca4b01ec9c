"""The page of a back-test, as text."""
