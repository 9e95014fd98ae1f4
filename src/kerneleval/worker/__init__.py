"""Stage 5, the untrusted side: sandbox, zygote, child and the wire between them and the judge.

``host`` and ``wire`` are also the trusted end of the wire; nothing here knows inputs, seeds, references or verdicts.
"""
