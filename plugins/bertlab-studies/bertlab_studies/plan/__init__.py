"""What a study will run: its file, its runs, and what they cost."""
