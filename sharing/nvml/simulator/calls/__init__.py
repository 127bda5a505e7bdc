"""The library's functions, a module a subject. Each writes its answer through its arguments."""
