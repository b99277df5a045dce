"""One job with CAMEL, DataDesigner, distilabel and curator on the same simulated endpoint."""
