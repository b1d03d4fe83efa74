"""Complete plugin packages from templates: what ``bertlab new-plugin`` writes."""
