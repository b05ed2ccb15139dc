"""What a supervisor tells of its builds to monitoring: Prometheus metrics and OpenTelemetry traces."""
