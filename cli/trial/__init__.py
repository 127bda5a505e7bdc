"""A trial of the whole product on an embedded cluster: what `gpu-sharing demo` shows.

``scenario`` is the file that says what to do and what must come out; ``installation`` starts the
cluster and the product's programs; ``facts`` reads back what happened; ``deviations`` holds the
facts against the scenario; ``report`` shows them to a person.
"""
