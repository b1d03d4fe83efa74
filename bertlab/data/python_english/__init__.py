"""The English that ships with Python: text and labelled examples without a download."""
