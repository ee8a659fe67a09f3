"""HTTP archives of a cloud's calls, and their replay."""
