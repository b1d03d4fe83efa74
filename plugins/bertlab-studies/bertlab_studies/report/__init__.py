"""From the runs' files to statistics, tables, plots and pages."""
