"""The verbs for Python and notebooks, without a command line: `fit`, `load`, `submit`.

Nothing here exits the process, takes its signals or changes its logging. Errors are those of
`errors`, all of them a `UserError`; PyTorch is imported by the first call that computes.
"""
