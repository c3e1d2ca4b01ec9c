"""A real control plane and a real Prometheus on loopback, and a node agent that plays the kubelet.

What is real: etcd, kube-apiserver (validation, admission, RBAC, audit), kube-controller-manager, kube-scheduler and
Prometheus. What is played: the kubelet with its exporters (`agent.py`), through the API alone and by the rules of
`autoscaler.core.kubelet`, the same that predict outcomes in plans.
"""
