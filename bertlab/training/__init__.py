"""One run from config to results: built, trained, evaluated, recorded."""
