"""A review in, a verdict out.

The way of a pod through this package, each step a module named for it: ``review`` →
``request`` → ``decision`` → ``grant`` → ``patch`` → ``verdict``. All of these are pure. The
server, its caches and its files stand around them and decide nothing.
"""
