"""The command ``gpu-sharing``, one module a command.

Commands turn words into calls and results into tables; they decide nothing. Each imports what
it needs when it runs, so that ``--help`` is quick.
"""
