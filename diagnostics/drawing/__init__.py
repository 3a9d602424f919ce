"""Pictures of the report as SVG elements of its page: no font, no file and no other program is needed."""
