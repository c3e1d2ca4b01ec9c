"""A back-test as one page of HTML with plots: no script, nothing that is loaded, drawn here."""
