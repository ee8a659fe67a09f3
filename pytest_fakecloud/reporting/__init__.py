"""What a failing test shows: the section of its report, the timeline page, hints, masking."""
