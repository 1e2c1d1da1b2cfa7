"""A page that looks like the dashboard: drawn from its JSON and from what Prometheus answers to its queries."""
