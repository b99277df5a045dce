"""The emergence study (paper, section 5.2): what each added dataset teaches a model, by domain."""
