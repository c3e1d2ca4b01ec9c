"""bridge-autoscaler: keeps stateful simulation bridges at the right size without restarting them."""

__version__ = "0.1.0"
