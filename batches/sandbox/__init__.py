"""A stand-in for RelayPDF: a separate process that speaks its HTTP contract and really renders PDFs.

Imports nothing of `batches` and needs no Django, so `python -m batches.sandbox` works anywhere. What it
promises, what it can be made to do wrong, and every switch: `README.md` in this folder.
Tags of vendor facts such as A8 are explained in `providers/README.md`.
"""
