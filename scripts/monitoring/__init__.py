"""The Grafana dashboard and the Prometheus rules, made from the server's tables of metrics and outcomes."""
