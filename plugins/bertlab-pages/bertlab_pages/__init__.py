"""What the reports of evaluations and of studies share: tables, pictures, pages, escaping."""
