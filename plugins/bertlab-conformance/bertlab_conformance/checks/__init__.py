"""What the conformance kit checks, a module for each subject."""
