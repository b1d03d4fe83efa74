"""Silent corruption for bertlab: audits of training steps."""
