"""Programs in parts: networks, and between them what no network does.

What no network does are loops, choices by values in a run, lists of arrays, and steps whose results
have shapes that follow from elements. Everything else between two of these is one network.
"""
