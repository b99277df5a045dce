"""The emergence study (paper, section 5.2): how each added dataset changes a model's answers, by domain."""
