"""The commands of ``topiczoo``, one idea a file; nothing here imports JAX before a command runs."""
