"""Judges one submission: from the text of a notebook to a record with reasons."""
