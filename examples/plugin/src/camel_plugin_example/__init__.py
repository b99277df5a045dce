"""A plug-in for CAMEL: one part of each kind, each as small as it can be."""
