"""Reports of failing tests: the text section, the timeline page, hints, masking."""
