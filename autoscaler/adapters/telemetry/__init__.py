"""What the controller says of itself: log lines, metrics, and the two questions of a kubelet's probes."""
