"""The way to the GPU driver, and a simulated driver for machines that have none.

``driver`` is the one adapter: it speaks to NVML through pynvml and answers in the values of
``observed``. ``simulator`` takes the place of NVML's C library below pynvml, so that all of
pynvml's own code runs in tests, in the demo and on laptops. May import the domain in
``sharing``; knows nothing of Kubernetes.
"""
