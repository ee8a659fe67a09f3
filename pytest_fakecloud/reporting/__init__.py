"""Reports of failing tests: the text section, the timeline page, masking."""
