"""``bertlab new-plugin``: a complete package with a plugin, from templates."""
