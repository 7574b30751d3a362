"""Version 1 of what travels on the bus: subjects, headers, frames, records and their limits.

Nothing here connects. Everything that decodes is bounded and refuses with a ``WireError`` that says what is wrong; the
vectors in ``wire/testdata`` of the repository are the same for every language.
"""
